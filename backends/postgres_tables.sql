-- The tables, made on first use or by `distlock init`, and not touched where they are. Several statements in one
-- message are one transaction, which the lock in front keeps apart from that of another first user.
--
-- Names are bytes, so that they are exact in every encoding and collation of a database; they are never empty and hold
-- no zero byte. Everything is in the schema public by name: a search_path, which a pooler hands on from client to
-- client, must not decide which lock is meant.
--
-- distlock_layout   one row: the version of all this. A program that does not know it touches nothing
-- distlock_lock     one row a lock, kept for its token. Held while owner is not null and expires_at is to come;
--                   after a release expires_at is when that was
--     token         the last one granted, 0: none yet
--     ttl           seconds
--     channel       of NOTIFY, on which the holder hears that its lease went to somebody else
--     backend       pid of the session that holds the advisory lock; null where there is none
--     advisory_key  of pg_advisory_lock; null as long as nobody used it. Two names with the same one: an error
--     kept          its holder's run is over, and the lock outlives it: nobody has it until expires_at
--     revoked_by    the operator who took the lease away, in UTF-8; null if nobody did
--     details       JSON: host, pid, user, command, label, since, TTL of the holder
--     succeeded_at  when the last run that succeeded started; null if none has
--                   Held by several, the owner is several-N for N of them, and expires_at the last of their leases' ends
-- distlock_holder   one row a holder of a lock that several may hold, by index, and what died. Columns as above; they
--                   live while their lock's owner is several-N
-- distlock_waiter   one row a waiter, by place. It lives while it was seen a few seconds ago and its session is there
--     channel       of NOTIFY, on which it is woken
--     backend       pid of its session; null behind a pooler, which shares sessions out
-- distlock_mark     one row a mark: that something was done under a lock. The next mark drops those that are over
--     began_at      when what is marked began
--     kept_until    when it may be forgotten
-- distlock_fence    one row a resource and index of a holder, for ever: the greatest token that it has seen
--     used_at       when it was asked for last; younger than the table, so rows may have the time of their upgrade

SELECT pg_advisory_xact_lock({key});

CREATE TABLE IF NOT EXISTS public.distlock_layout (
    version integer PRIMARY KEY
);

CREATE TABLE IF NOT EXISTS public.distlock_lock (
    name bytea PRIMARY KEY,
    token bigint NOT NULL,
    owner text,
    ttl double precision,
    expires_at timestamptz,
    channel text,
    backend integer,
    advisory_key bigint,
    details text,
    kept boolean NOT NULL DEFAULT false,
    revoked_by bytea,
    succeeded_at timestamptz,
    CONSTRAINT distlock_lock_advisory_key UNIQUE (advisory_key)
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS public.distlock_waiter (
    name bytea NOT NULL,
    owner text NOT NULL,
    place bigint NOT NULL,
    seen_at timestamptz NOT NULL,
    channel text NOT NULL,
    backend integer,
    details text NOT NULL,
    PRIMARY KEY (name, owner)
) WITH (fillfactor = 70);

-- Younger than the others: who had a right on waiters before it was made has it on holders too.
DO $$
DECLARE
    granted record;
BEGIN
    IF to_regclass('public.distlock_holder') IS NULL THEN
        CREATE TABLE public.distlock_holder (
            name bytea NOT NULL,
            index integer NOT NULL,
            owner text NOT NULL,
            token bigint NOT NULL,
            ttl double precision NOT NULL,
            expires_at timestamptz NOT NULL,
            channel text,
            backend integer,
            details text NOT NULL,
            kept boolean NOT NULL DEFAULT false,
            revoked_by bytea,
            PRIMARY KEY (name, index)
        ) WITH (fillfactor = 70);
        FOR granted IN
            SELECT privilege_type AS privilege, coalesce(quote_ident(rolname), 'PUBLIC') AS role
            FROM pg_class
                CROSS JOIN aclexplode(relacl) AS acl
                LEFT JOIN pg_roles ON pg_roles.oid = acl.grantee
            WHERE pg_class.oid = 'public.distlock_waiter'::regclass AND acl.grantee <> relowner
                AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        LOOP
            EXECUTE 'GRANT ' || granted.privilege || ' ON public.distlock_holder TO ' || granted.role;
        END LOOP;
    END IF;
END
$$;

CREATE TABLE IF NOT EXISTS public.distlock_mark (
    name bytea NOT NULL,
    slot bytea NOT NULL,
    began_at timestamptz NOT NULL,
    kept_until timestamptz NOT NULL,
    PRIMARY KEY (name, slot)
);

CREATE INDEX IF NOT EXISTS distlock_mark_kept_until ON public.distlock_mark (kept_until);

CREATE TABLE IF NOT EXISTS public.distlock_fence (
    resource bytea NOT NULL,
    index integer NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (resource, index)
) WITH (fillfactor = 70);

ALTER TABLE public.distlock_fence ADD COLUMN IF NOT EXISTS used_at timestamptz DEFAULT now();

COMMENT ON TABLE public.distlock_layout IS 'distlock: version of its tables';
COMMENT ON TABLE public.distlock_lock IS 'distlock: locks, their holders and last tokens';
COMMENT ON TABLE public.distlock_holder IS 'distlock: holders of locks that several may hold';
COMMENT ON TABLE public.distlock_waiter IS 'distlock: who waits for which lock';
COMMENT ON TABLE public.distlock_mark IS 'distlock: what was done under locks';
COMMENT ON TABLE public.distlock_fence IS 'distlock: greatest fencing tokens seen';

INSERT INTO public.distlock_layout SELECT {layout} WHERE NOT EXISTS (SELECT FROM public.distlock_layout);
