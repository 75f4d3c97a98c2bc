-- The column that format 5 adds. As in schema.sql, a change here is a new format.

-- The path from which a change moved the file here. Another change of the batch removed the file there.
ALTER TABLE changes ADD COLUMN moved_from TEXT;
