"""Several Redis together, each a real one: a master with replicas and sentinels, a cluster, independent ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from processes import wait_until
from servers import HOST, RedisServer, free_port

SERVICE = "mymaster"
SLOTS = 16384


# -- sentinels ---------------------------------------------------------------------------------------------------------


@dataclass
class Sentinel(RedisServer):
    """A redis-sentinel with its files in ``folder``. ``settings`` are lines of its configuration."""

    settings: tuple[str, ...] = ()

    def start(self, *more: str, ready: bool = True) -> None:
        self.folder.mkdir(exist_ok=True)
        listen = ["port 0", f"tls-port {self.port}", *self.tls] if self.tls else [f"port {self.port}"]
        lines = [
            *listen,
            f"bind {HOST}",
            f"unixsocket {self.socket}",
            f"dir {self.folder}",
            "sentinel deny-scripts-reconfig yes",
            *self.settings,
            *more,
        ]
        file = self.folder / "sentinel.conf"
        if not file.exists():  # it keeps there what it learns
            file.write_text("\n".join(lines) + "\n")
        command = ["setpriv", "--pdeathsig", "KILL", "redis-sentinel", str(file)]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            wait_until(self.answers, 20, "an answer of redis-sentinel")


@dataclass
class Watched:
    """A master, its replicas, and the sentinels that watch them."""

    servers: list[RedisServer]
    sentinels: list[Sentinel]

    @property
    def places(self) -> str:
        return ",".join(sentinel.place for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.places}/{SERVICE}"

    def master(self) -> RedisServer:
        """As the first sentinel that lives says."""
        for sentinel in self.sentinels:
            if sentinel.process is not None and sentinel.process.poll() is None:
                _, port = sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                return next(server for server in self.servers if server.port == int(port))
        raise AssertionError("no sentinel lives")

    def replicas(self) -> list[RedisServer]:
        master = self.master()
        return [server for server in self.servers if server is not master]

    def replicated(self) -> None:
        """Returns when the replicas know all that the master knows now."""
        offset = int(self.master().command("INFO", "replication")["master_repl_offset"])

        def knows(replica: RedisServer) -> bool:
            told = replica.command("INFO", "replication")
            return told["master_link_status"] == "up" and int(told["slave_repl_offset"]) >= offset

        wait_until(lambda: all(map(knows, self.replicas())), 20, "replication")

    def fail_over(self) -> None:
        """To a replica, with the master alive: it becomes a replica in its turn."""
        before = self.master()

        def accepted() -> bool:
            try:
                self.sentinels[0].command("SENTINEL", "FAILOVER", SERVICE)
            except redis.ResponseError:  # no good replica yet: it has only just been heard of
                return False
            return True

        wait_until(accepted, 20, "a failover")
        wait_until(lambda: self.master() is not before, 20, "another master")


@contextmanager
def watched(
    folder: Path,
    replicas: int = 1,
    sentinels: int = 3,
    down_after: float = 0.5,
    options: tuple[str, ...] = (),
    tls: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    password: str = "",
) -> Iterator[Watched]:
    """``settings`` are those of the sentinels; the password is the servers', among each other as well."""
    folder.mkdir(exist_ok=True)
    login = ("--requirepass", password, "--masterauth", password) if password else ()
    secure = ("--tls-replication", "yes") if tls else ()
    of_server = tuple(word for line in tls for word in (f"--{line.split()[0]}", line.split()[1]))
    servers = [
        RedisServer(
            folder / f"redis{number}", (*options, *login, *secure, "--repl-diskless-sync-delay", "0"), tls=of_server
        )
        for number in range(1 + replicas)
    ]
    group = Watched(servers, [])
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
        servers[0].start()
        for replica in servers[1:]:
            replica.start("--replicaof", HOST, str(servers[0].port))
        watch = [
            f"sentinel monitor {SERVICE} {HOST} {servers[0].port} {sentinels // 2 + 1}",
            f"sentinel down-after-milliseconds {SERVICE} {int(down_after * 1000)}",
            f"sentinel failover-timeout {SERVICE} 6000",
            *([f"sentinel auth-pass {SERVICE} {password}"] if password else []),
            *(["tls-replication yes"] if tls else []),
        ]
        for number in range(sentinels):
            sentinel = Sentinel(folder / f"sentinel{number}", settings=(*watch, *settings), tls=tls)
            stack.callback(sentinel.kill)
            group.sentinels.append(sentinel)
            sentinel.start()
        if not any("requirepass" in line for line in settings):
            wait_until(lambda: all(_knows_all(one, replicas, sentinels) for one in group.sentinels), 20, "sentinels")
        yield group


def _knows_all(sentinel: Sentinel, replicas: int, sentinels: int) -> bool:
    told = sentinel.command("SENTINEL", "MASTER", SERVICE)
    known = told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
    names = {_text(name): _text(value) for name, value in known.items()}
    return int(names["num-slaves"]) >= replicas and int(names["num-other-sentinels"]) == sentinels - 1


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# -- a cluster ---------------------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Masters with equal shares of the slots, and for each of them so many replicas."""

    masters: list[RedisServer]
    replicas: list[RedisServer]

    @property
    def nodes(self) -> list[RedisServer]:
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(node.place for node in self.nodes)

    def living(self) -> RedisServer:
        return next(node for node in self.nodes if node.process is not None and node.process.poll() is None)

    def of(self, name: str) -> RedisServer:
        """The master that has a lock, as a node that lives says."""
        asked = self.living()
        slot = asked.command("CLUSTER", "KEYSLOT", f"lock:{name}")
        for first, last, master, *_ in asked.command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError(f"nobody has slot {slot}")

    def id_of(self, node: RedisServer) -> str:
        found: bytes = node.command("CLUSTER", "MYID")
        return found.decode()

    def is_up(self) -> bool:
        return all(b"cluster_state:ok" in _raw(node, "CLUSTER", "INFO") for node in self.nodes)


def _raw(node: RedisServer, *words: str) -> bytes:
    answer = node.command(*words)
    return answer if isinstance(answer, bytes) else "\n".join(f"{k}:{v}" for k, v in answer.items()).encode()


@contextmanager
def cluster(
    folder: Path, masters: int = 3, replicas: int = 0, node_timeout: float = 5.0, options: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    """With so many replicas for each master."""
    folder.mkdir(exist_ok=True)
    words = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(int(node_timeout * 1000)), *options)
    nodes = [
        RedisServer(folder / f"node{number}", (*words, "--cluster-port", str(free_port())))
        for number in range(masters * (1 + replicas))
    ]
    group = Cluster(nodes[:masters], nodes[masters:])
    with ExitStack() as stack:
        for number, node in enumerate(nodes):
            stack.callback(node.kill)
            node.start()
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(group.masters):
            first, end = SLOTS * number // masters, SLOTS * (number + 1) // masters
            node.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for node in nodes[1:]:
            nodes[0].command("CLUSTER", "MEET", HOST, node.port, node.options[-1])
        for number, node in enumerate(group.replicas):
            master = group.id_of(group.masters[number % masters])
            wait_until(lambda: master in _raw(node, "CLUSTER", "NODES").decode(), 20)  # noqa: B023
            node.command("CLUSTER", "REPLICATE", master)
        wait_until(group.is_up, 30, "a cluster that is up")
        yield group


# -- independent ones --------------------------------------------------------------------------------------------------


@contextmanager
def independent(folder: Path, count: int = 3, keep: bool = False) -> Iterator[list[RedisServer]]:
    folder.mkdir(exist_ok=True)
    nodes = [RedisServer(folder / f"node{number}", keep=keep) for number in range(count)]
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node.running())
        yield nodes


def redlock_url(nodes: list[RedisServer]) -> str:
    return "redlock://" + ",".join(node.place for node in nodes)
