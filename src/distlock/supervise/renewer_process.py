"""The renewer as a process: how it begins, and that it ends in no other way than by telling."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ..backend_url import probable_backend
from ..backends import preload
from .briefing import Briefing
from .detached import detach, limit_accounting
from .gate import Links
from .plan import Plan
from .renewer import Renewer
from .signals import Signals
from .wire import Channel, Kind, Message


def run(supervisor: int, briefing: Briefing, links: Links, signals: Signals) -> NoReturn:
    """The whole life of R. Never returns; whatever goes wrong is told to the supervisor."""
    stderr = detach((*briefing.descriptors, *links.channel.descriptors, *links.gate.of_renewer), signals)
    preload(probable_backend(sys.argv))
    content = briefing.receive()
    if content is None:
        os._exit(0)
    plan, channel = Plan.from_bytes(content), links.channel
    try:
        if plan.verbosity >= 2 and stderr >= 0:
            os.dup2(stderr, 2)
        renewer = Renewer(plan, supervisor, links, stderr)
        try:
            renewer.run()
        except BaseException as error:  # noqa: BLE001 - as below
            _tell(error, plan, channel)
        limit_accounting(stderr)
        renewer.account.close()
    except BaseException as error:  # noqa: BLE001 - a process that must tell its end
        _tell(error, plan, channel)
    finally:
        os._exit(0)


def _tell(error: BaseException, plan: Plan, channel: Channel) -> None:
    if plan.verbosity >= 2:
        import traceback

        traceback.print_exception(error)
    channel.send(Message(Kind.FAILED, 0, text=f"the renewer failed: {type(error).__name__}: {error}"))
