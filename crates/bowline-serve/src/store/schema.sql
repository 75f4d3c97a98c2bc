CREATE TABLE sessions(
  id TEXT PRIMARY KEY,
  principal TEXT NOT NULL,
  cwd TEXT NOT NULL,
  title TEXT,
  setup TEXT NOT NULL,
  pending TEXT NOT NULL,
  generation INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  archived_at INTEGER
) STRICT;
CREATE INDEX sessions_by_change ON sessions(updated_at);
CREATE TABLE events(
  session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  last_seq INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  run BLOB NOT NULL,
  PRIMARY KEY(session, last_seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE tokens(
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  secret_hash BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER
) STRICT;
