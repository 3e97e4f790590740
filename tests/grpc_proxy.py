"""A proxy for the unary calls of gRPC, in front of a real server: answers can be changed, or lost on the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc


@dataclass
class GrpcProxy:
    port: int = 0
    change: Callable[[str, bytes], bytes] = lambda _, answer: answer
    """Gets the call's name, such as Txn, and the answer's bytes."""
    lose: dict[str, int] = field(default_factory=dict)
    """How many of the next answers to a call are lost, though the server has done what was asked."""
    seen: list[str] = field(default_factory=list)

    def _handler(self, upstream: Any, call: Any) -> Any:
        name = call.method.rpartition("/")[2]

        def pass_on(request: bytes, context: Any) -> bytes:
            self.seen.append(name)
            metadata = tuple((key, value) for key, value in context.invocation_metadata() if key == "token")
            try:
                answer = upstream.unary_unary(call.method)(request, timeout=5, metadata=metadata)
            except grpc.RpcError as error:
                return bytes(context.abort(error.code(), error.details()))
            if self.lose.get(name, 0) > 0:
                self.lose[name] -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return self.change(name, answer)

        return grpc.unary_unary_rpc_method_handler(pass_on)


@contextmanager
def grpc_proxy(place: str) -> Iterator[GrpcProxy]:
    proxy = GrpcProxy()
    upstream = grpc.insecure_channel(place)

    class Everything(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> Any:
            return proxy._handler(upstream, call)

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Everything(),))
    proxy.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield proxy
    finally:
        server.stop(None).wait()
        upstream.close()
