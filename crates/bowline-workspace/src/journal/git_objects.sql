-- The column and the tables that format 4 adds. As in schema.sql, a change here is a new format.

-- The object in a git repository that has the file's bytes, if they are not in `blobs` for that reason.
ALTER TABLE baseline ADD COLUMN git_object BLOB CHECK (git_object IS NULL OR length(git_object) = 20);

-- The packs that have these objects. While all of them exist, so do the objects.
CREATE TABLE git_packs (
    path TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- The objects of texts that left the baseline. A process that noticed a file's change last needs the text that another
-- process has already replaced in the baseline.
CREATE TABLE git_texts (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    git_object BLOB NOT NULL CHECK (length(git_object) = 20)
) STRICT;
