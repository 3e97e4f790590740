-- Layout 1 of a lock database: one lock a file, made complete under another name and linked into place, so that a
-- file without all of this is damage. "Clock" is the host's CLOCK_BOOTTIME in seconds (local_boot.py), no wall clock.

PRAGMA application_id = 1684826929; -- "dlk1"
PRAGMA user_version = 1;            -- the layout; every other number is refused

-- The lock itself, always exactly one row. Free: owner is ''.
CREATE TABLE lock (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    name      TEXT    NOT NULL,             -- compared on opening: the file's name is only a hash of it
    token     INTEGER NOT NULL,             -- the last one granted, or the floor of a new database
    tickets   INTEGER NOT NULL DEFAULT 0,   -- the last ticket number given out
    changes   INTEGER NOT NULL DEFAULT 0,   -- grows with every grant, renewal and release
    changed   REAL    NOT NULL DEFAULT 0,   -- clock at the last of them; the lease ends at changed + ttl
    boot      TEXT    NOT NULL DEFAULT '',  -- who wrote that: boot id,
    machine   TEXT    NOT NULL DEFAULT '',  --   machine id ('' if there is none),
    contained INTEGER NOT NULL DEFAULT 0,   --   1 in a container, where both may be made up,
    namespace TEXT    NOT NULL DEFAULT '',  --   pid namespace, in which pid and started mean something,
    uid       INTEGER NOT NULL DEFAULT 0,   --   effective uid
    started   INTEGER NOT NULL DEFAULT 0,   -- start time of process pid in clock ticks (0: not known)
    ticket    INTEGER NOT NULL DEFAULT 0,   -- the holder's: it keeps the byte 2**40 + ticket of this file locked
    ttl       REAL    NOT NULL DEFAULT 0,
    owner     TEXT    NOT NULL DEFAULT '',  -- the holder, as operators see it
    host      TEXT    NOT NULL DEFAULT '',
    pid       INTEGER NOT NULL DEFAULT 0,
    user      TEXT    NOT NULL DEFAULT '',
    command   TEXT    NOT NULL DEFAULT '',
    label     TEXT,
    since     REAL    NOT NULL DEFAULT 0    -- Unix time, shown and never compared
);

-- The queue, in the order of its tickets. A row counts while its byte 2**40 + ticket is locked; a dead waiter's byte
-- is not, and whoever comes by drops the row.
CREATE TABLE waiter (
    ticket  INTEGER PRIMARY KEY,
    owner   TEXT    NOT NULL,
    host    TEXT    NOT NULL,
    pid     INTEGER NOT NULL,
    user    TEXT    NOT NULL,
    command TEXT    NOT NULL,
    label   TEXT,
    since   REAL    NOT NULL
);
