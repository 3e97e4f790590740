-- Holders of a lock that several may have at once, one row each: made beside the tables of local.sql by the first of
-- them, so that a plain lock is stored without. It counts while owner of the lock's row is 'several holders'. That row
-- is then held for as long as the longest of these, for a distlock that does not know this table: to it the lock is
-- somebody else's. Columns as in local.sql.

CREATE TABLE IF NOT EXISTS place (
    holder_index INTEGER PRIMARY KEY,
    holders   INTEGER NOT NULL, -- how many may hold it: the same in all rows whose lease has not run out
    token     INTEGER NOT NULL, -- of one sequence for all: the lock's row has the last one
    changes   INTEGER NOT NULL, -- the lock's at the last change of this row
    changed   REAL    NOT NULL,
    boot      TEXT    NOT NULL,
    machine   TEXT    NOT NULL,
    contained INTEGER NOT NULL,
    namespace TEXT    NOT NULL,
    uid       INTEGER NOT NULL,
    started   INTEGER NOT NULL,
    ticket    INTEGER NOT NULL,
    ttl       REAL    NOT NULL,
    kept      INTEGER NOT NULL,
    revoked   TEXT,
    owner     TEXT    NOT NULL,
    host      TEXT    NOT NULL,
    pid       INTEGER NOT NULL,
    user      TEXT    NOT NULL,
    command   TEXT    NOT NULL,
    label     TEXT,
    since     REAL    NOT NULL
);

-- What those in the queue say who do not want it alone. A row counts while the waiter has one of its own.
CREATE TABLE IF NOT EXISTS wish (
    ticket  INTEGER PRIMARY KEY,
    holders INTEGER NOT NULL
)
