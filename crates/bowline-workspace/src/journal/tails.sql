-- The tables that format 3 adds. As in schema.sql, a change here is a new format.

-- The bytes that a change added to the end of its file, or removed from there, where only they are kept of the file. The
-- hash refers to `blobs`.
CREATE TABLE tails (
    change INTEGER PRIMARY KEY,
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE INDEX tails_by_hash ON tails (hash);
