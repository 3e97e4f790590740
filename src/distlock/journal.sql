-- Layout 1 of the journal: the runs of one user on one host, the newest of them, and sums over all that ever were.
-- Nothing here decides about a lock. Instants are Unix time, lengths are seconds.

PRAGMA user_version = 1;

CREATE TABLE run (
    id         INTEGER PRIMARY KEY,  -- in the order in which they ended
    name       TEXT NOT NULL,
    backend    TEXT NOT NULL,        -- a profile's name, or a URL without secrets
    owner      TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    label      TEXT,
    ttl        REAL NOT NULL,
    outcome    TEXT NOT NULL,
    asked_at   REAL NOT NULL,
    waited     REAL NOT NULL,
    granted_at REAL,
    held       REAL,
    token      INTEGER,
    exit_code  INTEGER,
    reason     TEXT,
    slack      REAL,
    renewals   INTEGER NOT NULL,     -- answered ones
    failures   INTEGER NOT NULL,
    mean       REAL,                 -- latency
    longest    REAL,
    closest    REAL,                 -- left until the stop signal when the latest answer came
    ended_at   REAL NOT NULL,
    holder_index INTEGER             -- of one of several holders; journals of earlier releases get this column later
);
CREATE INDEX run_of_name ON run (name, id);

-- For metrics, which must not go backwards when old runs are dropped: one row a lock, never removed. When there are
-- too many locks, the sums of further ones go to the row of a name that no lock can have.
CREATE TABLE sums (
    name    TEXT NOT NULL,
    backend TEXT NOT NULL,
    counted TEXT NOT NULL,           -- JSON, see sums.py
    PRIMARY KEY (name, backend)
);

-- Writes that a resource refused because their fencing token was too old.
CREATE TABLE refusal (
    resource TEXT PRIMARY KEY,
    count    INTEGER NOT NULL
);
