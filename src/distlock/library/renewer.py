"""R for a Python program: the subprocess that gets the lease, keeps it, gives it back.

A process and not a thread: it renews while the program keeps the interpreter's lock, and loads client libraries that
the program may have in another version. It kills nobody, ends with its host, and gives the lease back then.
"""

from __future__ import annotations

import os
import select
from contextlib import closing
from typing import NoReturn

from ..backends import open_backend
from ..backends.base import Backend, DistlockError, Environment, Grant
from ..clock import boottime
from ..errors import Cancelled
from ..granted import check_granted
from ..leasing import acquire, give_back
from ..renewal import Renewal, Schedule, Told
from ..state import state_directory
from ..supervise.naming import name_process
from ..supervise.wire import Channel, Kind, Message, SharedDeadline, failure
from ..timeouts import RELEASE
from .order import HOST, LINE, PAGE, Order, read_order


def main() -> NoReturn:
    """The whole life of R. Never returns; whatever goes wrong is told to the host."""
    channel = None
    try:
        _detach()
        order = read_order(LINE)
        channel = Channel(LINE, LINE)
        _keep(order, channel, SharedDeadline(PAGE))
    except (Cancelled, EOFError):
        pass
    except DistlockError as error:
        assert channel is not None
        channel.send(failure(error))
    except BaseException as error:  # noqa: BLE001 - a process that must tell its end
        if channel is not None:
            channel.send(Message(Kind.FAILED, 0, text=f"the renewer failed: {type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _detach() -> None:
    """A session of its own: what a terminal sends to the host's group is not for us. Other signals that end a program
    are blocked since before the exec. What libraries write is not for the user."""
    os.setsid()
    name_process("distlock-renew")
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    # Somebody may wait for the end of file of a descriptor that the host lets its children inherit.
    os.closerange(max(LINE, PAGE, HOST) + 1, os.sysconf("SC_OPEN_MAX"))


def _keep(order: Order, channel: Channel, deadline: SharedDeadline) -> None:
    leave = select.epoll()  # readable when the host says so, has closed its end, or is dead
    leave.register(LINE, select.EPOLLIN)
    leave.register(HOST, select.EPOLLIN)
    with closing(open_backend(order.backend, Environment(boottime, state_directory, order.password))) as backend:
        grant = acquire(backend, order.wanted, leave.fileno())
        check_granted(backend, grant, order.wanted.ttl, order.grace, RELEASE)
        _hold(backend, grant, order, channel, deadline, leave)


def _hold(
    backend: Backend, grant: Grant, order: Order, channel: Channel, deadline: SharedDeadline, leave: select.epoll
) -> None:
    schedule = Schedule(grant, order.grace)

    def lost(reason: str) -> None:
        channel.send(Message(Kind.LOST, text=reason))  # first, so that who sees the page finds the reason
        deadline.set(float("-inf"))

    renewal = Renewal(
        backend,
        schedule,
        boottime,
        Told(deadline.set, lost, lambda line: channel.send(Message(Kind.TROUBLE, text=line))),
    )
    deadline.set(schedule.hard)
    token = -1 if grant.token is None else grant.token
    channel.send(Message(Kind.GRANTED, token, grant.holder_index, repr(grant.ttl)))
    renewal.start()
    leave.poll()
    # A host that has lost its descriptors without knowing it must not go on in the belief that it holds the lock.
    trouble = give_back(backend, renewal, before=lambda: deadline.set(float("-inf")))
    channel.send(Message(Kind.RELEASED, int(not trouble), text=trouble))
