"""etcd3 and gRPC: the import, which takes care, and the calls to one endpoint.

Of etcd3 only the messages are used. Its client talks to one endpoint, has calls without a time-out and a thread that
dies in silence; a channel of gRPC with the few calls below is all that is needed of it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .base import ConfigurationError

if TYPE_CHECKING:
    from .etcd_url import Server

Message = Any  # generated: without types
Stream = Any  # of messages, for as long as it is iterated over


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """For as long as the libraries read it, and not for whatever this process starts later."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _etcd3_messages() -> Any:
    """etcd3.etcdrpc without etcd3's client, which would cost a sixth of the start. Whoever imports etcd3 later gets the
    whole of it."""
    found = find_spec("etcd3")
    if found is None:
        raise ImportError("etcd3 is not installed")
    bare = "etcd3" not in sys.modules
    if bare:
        package = ModuleType("etcd3")
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["etcd3"] = package
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # for each of its messages, what protobuf thinks of it
            return import_module("etcd3.etcdrpc")
    except TypeError as error:  # "Descriptors cannot be created directly"
        raise ImportError(
            "this process had loaded protobuf in its compiled form before, with which etcd3 does not work"
        ) from error
    finally:
        if bare:
            sys.modules.pop("etcd3", None)


# The code that etcd3 brings was generated for protobuf 3: any later one takes it in its pure form only. And gRPC's own
# log lines on stderr would stand beside ours.
with _environment(
    {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")}
):
    import grpc

    pb: Any = _etcd3_messages()
    grpc.insecure_channel("localhost:1").close()  # the first one reads the rest of the environment

CallFailed = grpc.RpcError
Code = grpc.StatusCode

_CALLS = {
    "Range": ("KV/Range", pb.RangeResponse),
    "Txn": ("KV/Txn", pb.TxnResponse),
    "LeaseGrant": ("Lease/LeaseGrant", pb.LeaseGrantResponse),
    "LeaseRevoke": ("Lease/LeaseRevoke", pb.LeaseRevokeResponse),
    # A stream by its definition. One request, one answer and the end of both sides is a stream too, and has a time-out.
    "LeaseKeepAlive": ("Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse),
    "LeaseTimeToLive": ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveResponse),
    "Status": ("Maintenance/Status", pb.StatusResponse),
    "Alarm": ("Maintenance/Alarm", pb.AlarmResponse),
    "MemberList": ("Cluster/MemberList", pb.MemberListResponse),
    "Authenticate": ("Auth/Authenticate", pb.AuthenticateResponse),
}

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection: the old one may be dead and silent
    ("grpc.enable_retries", 0),  # we retry, at another endpoint and within our time
    ("grpc.enable_http_proxy", 0),  # a lock must not depend on the proxy for web pages
    ("grpc.max_receive_message_length", -1),  # a page of a long list of locks
    ("SingleThreadedUnaryStream", 1),  # who reads a watch is woken without another thread in between
)
_SYSTEM_CAS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class Member:
    """A connection to one endpoint, made by the first call. Raises CallFailed, and ConfigurationError at once."""

    def __init__(self, server: Server, endpoint: str) -> None:
        self.endpoint = endpoint
        self._channel = _channel(server, endpoint)
        self._calls: dict[str, Any] = {}

    def call(self, name: str, request: Message | bytes, timeout: float, token: str) -> Message:
        return self._prepared(name)(request, timeout=timeout, metadata=_metadata(token))

    def watch(self, request: Message, token: str) -> Stream:
        """What is told of a key, to be iterated over: WatchResponses as they came. It ends when this member has lost
        its leader."""
        prepared = self._channel.unary_stream("/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, None)
        return prepared(request, metadata=(*_metadata(token), ("hasleader", "true")))

    def _prepared(self, name: str) -> Any:
        if name not in self._calls:
            method, response = _CALLS[name]
            self._calls[name] = self._channel.unary_unary(f"/etcdserverpb.{method}", _bytes_of, response.FromString)
        return self._calls[name]

    def close(self) -> None:
        """Ends what is under way, watches included."""
        self._channel.close()


def _bytes_of(request: Message | bytes) -> bytes:
    """What is urgent was made ready before: it takes etcd3's messages half a millisecond."""
    return request if isinstance(request, bytes) else bytes(request.SerializeToString())


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()


def _channel(server: Server, endpoint: str) -> Any:
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        target = f"ipv{ipaddress.ip_address(host).version}:{endpoint}"
    except ValueError:
        target = f"dns:///{endpoint}"
    if not server.tls:
        return grpc.insecure_channel(target, options=_OPTIONS)
    ca, key, cert = (_read(server, name) for name in ("ca", "key", "cert"))
    credentials = grpc.ssl_channel_credentials(ca or _system_cas(), key, cert)
    return grpc.secure_channel(target, credentials, options=_OPTIONS)


def _read(server: Server, name: str) -> bytes | None:
    path = getattr(server, name)
    if path is None:
        return None
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name}= of the backend URL: {error.strerror}") from error
    if b"-----BEGIN " not in found:
        raise ConfigurationError(f"{name}= of the backend URL is no PEM file")
    return found


def _system_cas() -> bytes | None:
    """What other programs of this host trust; gRPC brings a list of its own, which is the last resort."""
    paths = (ssl.get_default_verify_paths().cafile, *_SYSTEM_CAS)
    return next((Path(path).read_bytes() for path in paths if path and Path(path).is_file()), None)
