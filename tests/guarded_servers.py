"""A private server of each engine that lets nobody in without a password, and all that is stored there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from etcd_servers import EtcdMember
from postgres_servers import PostgresServer, postgres
from redis_groups import SERVICE, cluster, independent, watched
from servers import RedisServer
from zookeeper_servers import ZooKeeperServer, kazoo

SECRET = "Geheim-4711-hunter2"
USER = "job"


@dataclass(frozen=True)
class Guarded:
    """A server that asks for SECRET."""

    pattern: str
    """Of its URL, with {login} and {place}."""
    place: str
    content: Callable[[], str]
    """All that is stored there, in the clear."""
    query: str = ""
    """Of a URL with a password, with {secret}."""
    nowhere: str = "127.0.0.1:1"
    """A place without a server."""

    def url(self, secret: str) -> str:
        """With the password, or '' for none."""
        login = f"{USER}:{secret}@" if secret else f"{USER}@"
        query = self.query.format(secret=secret) if secret else ""
        return self.pattern.format(login=login, place=self.place) + query

    def gone(self) -> Guarded:
        return replace(self, place=self.nowhere)


@contextmanager
def _local(folder: Path) -> Iterator[Guarded]:
    """Needs none, and may be told one all the same."""
    locks = folder / "locks"

    def content() -> str:
        return "".join(f"{path}\n{path.read_bytes()!r}\n" for path in locks.rglob("*") if path.is_file())

    yield Guarded("local://{place}", str(locks), content, nowhere="/dev/null/locks")


# -- Redis -------------------------------------------------------------------------------------------------------------


def _let_in(servers: Iterable[RedisServer]) -> None:
    for server in servers:
        server.command("ACL", "SETUSER", USER, "on", f">{SECRET}", "~*", "&*", "+@all")
        server.command("CONFIG", "SET", "rdbcompression", "no")  # nothing is found in a compressed dump


def _dump(servers: Iterable[RedisServer]) -> str:
    found = []
    for server in servers:
        for key in server.command("KEYS", "*"):
            found += [key, server.command("DUMP", key)]
    return repr(found)


@contextmanager
def _redis(folder: Path) -> Iterator[Guarded]:
    with RedisServer(folder).running() as server:
        _let_in([server])
        yield Guarded("redis://{login}{place}/0", server.place, lambda: _dump([server]))


@contextmanager
def _sentinel(folder: Path) -> Iterator[Guarded]:
    """Asked without a login, or with one of its own."""
    user = f"user {USER} on >{SECRET} ~* &* +@all"
    with watched(folder, replicas=0, sentinels=1, down_after=10.0, settings=(user,)) as group:
        _let_in(group.servers)
        pattern = f"redis+sentinel://{{login}}{{place}}/{SERVICE}"
        query = f"?sentinel_user={USER}&sentinel_password={{secret}}"
        yield Guarded(pattern, group.places, lambda: _dump(group.servers), query)


@contextmanager
def _cluster(folder: Path) -> Iterator[Guarded]:
    with cluster(folder) as group:
        _let_in(group.nodes)
        places = ",".join(node.place for node in group.nodes)
        yield Guarded("redis+cluster://{login}{place}", places, lambda: _dump(group.nodes))


@contextmanager
def _redlock(folder: Path) -> Iterator[Guarded]:
    with independent(folder) as nodes:
        _let_in(nodes)
        places = ",".join(node.place for node in nodes)
        nowhere = ",".join(f"127.0.0.1:{port}" for port in (1, 2, 3))
        yield Guarded("redlock://{login}{place}", places, lambda: _dump(nodes), nowhere=nowhere)


# -- the others --------------------------------------------------------------------------------------------------------


@contextmanager
def _etcd(folder: Path) -> Iterator[Guarded]:
    with EtcdMember(folder, options=("--bcrypt-cost", "4")).running() as server:
        for words in (
            ("user", "add", f"root:{SECRET}"),
            ("user", "grant-role", "root", "root"),
            ("role", "add", USER),
            ("role", "grant-permission", USER, "--prefix=true", "readwrite", "/distlock/"),
            ("user", "add", f"{USER}:{SECRET}"),
            ("user", "grant-role", USER, USER),
            ("auth", "enable"),
        ):
            server.ctl(*words)
        root = {"ETCDCTL_USER": f"root:{SECRET}"}
        yield Guarded(
            "etcd://{login}{place}", server.place, lambda: server.ctl("get", "--prefix", "/", environment=root)
        )


@contextmanager
def _zookeeper(folder: Path) -> Iterator[Guarded]:
    """It knows no users: what a login has made is closed to others."""
    with ZooKeeperServer(folder).running() as server, kazoo(server) as client:
        client.add_auth("digest", f"{USER}:{SECRET}")
        client.create("/closed", acl=[make_digest_acl(USER, SECRET, all=True)])
        yield Guarded("zookeeper://{login}{place}/closed", server.place, lambda: _nodes(client, "/closed"))


def _nodes(client: KazooClient, path: str) -> str:
    """Without their ACLs: a digest of the password is the server's own way."""
    below = client.get_children(path)
    return f"{path} {client.get(path)[0]!r}\n" + "".join(_nodes(client, f"{path}/{name}") for name in below)


@contextmanager
def _postgres(_: Path) -> Iterator[Guarded]:
    with _guarded_postgres() as server:
        yield Guarded("postgresql://{login}{place}/postgres", server.place, lambda: _rows(server))


@contextmanager
def _advisory(_: Path) -> Iterator[Guarded]:
    with _guarded_postgres() as server:
        yield Guarded("postgresql+advisory://{login}{place}/postgres", server.place, lambda: _rows(server))


@contextmanager
def _guarded_postgres() -> Iterator[PostgresServer]:
    with postgres(hba=[f"host all {USER} 127.0.0.1/32 scram-sha-256"]) as server:
        server.role(USER, SECRET)
        server.sql(f"GRANT CREATE ON SCHEMA public TO {USER}")
        yield server


def _rows(server: PostgresServer) -> str:
    """And what everybody sees of the sessions."""
    names = server.sql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'distlock%'")
    found = [f"{name} {server.sql(f'SELECT * FROM {name}')!r}" for name in names]
    return "\n".join([*found, repr(server.sql("SELECT application_name, query FROM pg_stat_activity"))])


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Guarded]]] = {
    "redis": _redis,
    "local": _local,
    "redis+sentinel": _sentinel,
    "redis+cluster": _cluster,
    "redlock": _redlock,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "postgresql": _postgres,
    "postgresql+advisory": _advisory,
}
"""By a scheme of theirs."""
