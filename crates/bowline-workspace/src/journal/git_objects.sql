-- The column and the table that format 4 adds. As in schema.sql, a change here is a new format.

-- The object in a git repository that has the file's bytes, if they are not in `blobs` for that reason.
ALTER TABLE baseline ADD COLUMN git_object BLOB CHECK (git_object IS NULL OR length(git_object) = 20);

-- The packs that have these objects. While all of them exist, so do the objects.
CREATE TABLE git_packs (
    path TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
