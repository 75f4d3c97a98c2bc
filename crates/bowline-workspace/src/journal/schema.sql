-- The tables of format 2. The database keeps the text of each statement and is compared with this one: a change here is a
-- new format.

-- One row a change. Its number is never used again (AUTOINCREMENT), because others may refer to it after it is gone.
-- Those that were begun or recorded together have the number of the first of them as their batch. A hash refers to
-- `blobs` if the content is kept; it need not be, so it is no foreign key.
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
    source INTEGER NOT NULL CHECK (source BETWEEN 0 AND 2),
    manner INTEGER NOT NULL CHECK (manner BETWEEN 0 AND 2),
    temp TEXT CHECK ((temp IS NOT NULL) = (manner = 0)),
    session TEXT,
    turn INTEGER,
    call TEXT,
    command TEXT,
    path TEXT NOT NULL,
    before_hash BLOB CHECK (before_hash IS NULL OR length(before_hash) = 32),
    before_size INTEGER CHECK ((before_size IS NULL) = (before_hash IS NULL)),
    before_mode INTEGER CHECK ((before_mode IS NULL) = (before_hash IS NULL)),
    after_hash BLOB CHECK (after_hash IS NULL OR length(after_hash) = 32),
    after_size INTEGER CHECK ((after_size IS NULL) = (after_hash IS NULL)),
    after_mode INTEGER CHECK ((after_mode IS NULL) = (after_hash IS NULL)),
    reverses TEXT
) STRICT;
CREATE INDEX changes_pending ON changes (state) WHERE state = 0;
CREATE INDEX changes_by_path ON changes (path);
CREATE INDEX changes_by_session ON changes (session) WHERE session IS NOT NULL;
CREATE INDEX changes_by_before ON changes (before_hash) WHERE before_hash IS NOT NULL;
CREATE INDEX changes_by_after ON changes (after_hash) WHERE after_hash IS NOT NULL;

-- What is known of each content; its bytes are apart, so that adding up `stored` does not read them. What differs little
-- from another content is kept as the difference from that one, its base: so many steps, its depth, are between it and one
-- that is kept whole. A base stays as long as something is built on it.
CREATE TABLE blobs (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    size INTEGER NOT NULL,
    codec INTEGER NOT NULL CHECK (codec BETWEEN 0 AND 2),
    stored INTEGER NOT NULL,
    content INTEGER NOT NULL,
    base BLOB CHECK ((base IS NOT NULL) = (codec = 2)),
    depth INTEGER NOT NULL CHECK ((depth > 0) = (codec = 2))
) STRICT, WITHOUT ROWID;
CREATE INDEX blobs_by_base ON blobs (base) WHERE base IS NOT NULL;
CREATE TABLE contents (
    id INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- What the files of the workspace looked like when they were last looked at.
CREATE TABLE baseline (
    path TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    device INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    hash BLOB CHECK (hash IS NULL OR length(hash) = 32),
    racy INTEGER NOT NULL CHECK (racy BETWEEN 0 AND 1)
) STRICT, WITHOUT ROWID;
CREATE INDEX baseline_by_hash ON baseline (hash) WHERE hash IS NOT NULL;
