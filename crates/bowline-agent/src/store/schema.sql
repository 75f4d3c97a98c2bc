-- Numbers are below 2^31. `touched` is higher the later a session was used: unlike clocks, it never goes back. `next`
-- is the place of the next record. `sum` covers what does not change with every record.
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    cwd TEXT NOT NULL,
    touched INTEGER NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    details TEXT NOT NULL,
    sum BLOB NOT NULL,
    next INTEGER NOT NULL,
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    dropped INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_cwd ON sessions (cwd, touched);

-- The number of a session in the upper half of the key, the place of the record in the lower: the records of a session
-- lie together and in order, with no index that could disagree.
CREATE TABLE records (
    key INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL,
    sum BLOB NOT NULL
) STRICT;
