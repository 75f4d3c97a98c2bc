CREATE TABLE servers(
  id text PRIMARY KEY,
  name text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  lease_until timestamptz NOT NULL,
  is_draining boolean NOT NULL DEFAULT false
);
CREATE TABLE sessions(
  id text PRIMARY KEY,
  principal text NOT NULL,
  cwd text NOT NULL,
  title text,
  setup text NOT NULL,
  pending text NOT NULL,
  is_waiting boolean NOT NULL DEFAULT false,
  owner text,
  generation bigint NOT NULL,
  last_seq bigint NOT NULL,
  bytes bigint NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  archived_at bigint
);
CREATE INDEX sessions_by_change ON sessions(updated_at);
CREATE INDEX waiting_sessions ON sessions(owner) WHERE is_waiting;
CREATE TABLE events(
  session text NOT NULL REFERENCES sessions ON DELETE CASCADE,
  last_seq bigint NOT NULL,
  first_seq bigint NOT NULL,
  generation bigint NOT NULL,
  run bytea NOT NULL,
  PRIMARY KEY(session, last_seq)
);
CREATE TABLE inbox(
  id bigserial PRIMARY KEY,
  server text NOT NULL,
  sender text NOT NULL,
  session text,
  connections text NOT NULL,
  principal text NOT NULL,
  role text NOT NULL,
  message bytea NOT NULL,
  sent_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX inbox_by_server ON inbox(server, id);
CREATE TABLE tokens(
  id text PRIMARY KEY,
  name text NOT NULL UNIQUE,
  role text NOT NULL,
  secret_hash bytea NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint
);
