"""The engines by URL scheme. Nothing of an engine is imported before one of its URLs is opened."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from .base import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import Backend, Environment

SCHEMES: dict[str, str] = {
    "local": "distlock.backends.local:LocalBackend",
    "redis": "distlock.backends.redis:RedisBackend",
    "rediss": "distlock.backends.redis:RedisBackend",
    "redis+unix": "distlock.backends.redis:RedisBackend",
    "redis+sentinel": "distlock.backends.redis_sentinel:RedisSentinelBackend",
    "rediss+sentinel": "distlock.backends.redis_sentinel:RedisSentinelBackend",
    "redis+cluster": "distlock.backends.redis_cluster:RedisClusterBackend",
    "rediss+cluster": "distlock.backends.redis_cluster:RedisClusterBackend",
    "redlock": "distlock.backends.redlock:RedlockBackend",
    "redlocks": "distlock.backends.redlock:RedlockBackend",
    "etcd": "distlock.backends.etcd:EtcdBackend",
    "etcds": "distlock.backends.etcd:EtcdBackend",
    "zookeeper": "distlock.backends.zookeeper:ZooKeeperBackend",
    "zookeepers": "distlock.backends.zookeeper:ZooKeeperBackend",
    "postgresql": "distlock.backends.postgres:PostgresBackend",
    "postgres": "distlock.backends.postgres:PostgresBackend",
    "postgresql+advisory": "distlock.backends.postgres_advisory:AdvisoryBackend",
}


def scheme_of(url: str) -> str:
    """Imports nothing. Raises ConfigurationError when there is no engine for it; the rest of a URL may be secret and is
    not shown."""
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in SCHEMES:
        known = ", ".join(f"{name}:" for name in SCHEMES)
        shown = "" if "@" in scheme else f" for {scheme + colon!r}"  # it may be a mistyped URL with a password
        raise ConfigurationError(f"no backend{shown}; a backend URL begins with {known}")
    return scheme


def preload(url: str) -> None:
    """Import the engine of a URL that will probably be opened. Whatever is wrong is told when it is."""
    with suppress(Exception):
        import_module(SCHEMES[scheme_of(url)].partition(":")[0])


_TLS = {"ca": "ca", "cert": "cert", "key": "key"}
_TLS_OF_LIBPQ = {"ca": "sslrootcert", "cert": "sslcert", "key": "sslkey"}


def with_tls(scheme: str, url: str, files: Mapping[str, str]) -> str:
    """The URL with the paths of ``ca``, ``cert``, ``key`` in its query, under the names that its engine gives them."""
    names = _TLS_OF_LIBPQ if scheme.startswith("postgres") else _TLS
    query = "&".join(f"{names[key]}={_escaped(path)}" for key, path in files.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


def _escaped(path: str) -> str:
    """By hand: urllib.parse costs 6 ms to import."""
    plain = b"/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in path.encode(errors="surrogateescape"))


def engine_of(scheme: str) -> type[Backend]:
    """Raises Unavailable with the reason when the engine's client library does not import."""
    module, _, name = SCHEMES[scheme].partition(":")
    try:
        found: type[Backend] = getattr(import_module(module), name)
    except ImportError as error:
        raise Unavailable(f"the client library for {scheme}: does not import: {error}", permanent=True) from error
    return found


def open_backend(url: str, environment: Environment) -> Backend:
    """Raises ConfigurationError; Unavailable with the reason when an engine's client library does not import."""
    return engine_of(scheme_of(url)).from_url(url, environment)
