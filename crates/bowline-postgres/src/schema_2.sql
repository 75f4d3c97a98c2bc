-- The conversations of Bowline's own agent. `generation` counts the claims of a session: what an earlier holder still
-- sends is not stored. `touched` is higher the later a session was used. `next` is the place of the next record.
CREATE SEQUENCE agent_session_uses;
CREATE TABLE agent_sessions(
  id text PRIMARY KEY,
  cwd text NOT NULL,
  generation bigint NOT NULL,
  touched bigint NOT NULL UNIQUE DEFAULT nextval('agent_session_uses'),
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  details text NOT NULL,
  next bigint NOT NULL,
  bytes bigint NOT NULL,
  dropped bigint NOT NULL
);
CREATE INDEX agent_sessions_by_cwd ON agent_sessions(cwd, touched);
CREATE TABLE agent_records(
  session text NOT NULL REFERENCES agent_sessions ON DELETE CASCADE,
  place bigint NOT NULL,
  kind bigint NOT NULL,
  codec bigint NOT NULL,
  size bigint NOT NULL,
  data bytea NOT NULL,
  checksum bytea NOT NULL,
  PRIMARY KEY(session, place)
);
