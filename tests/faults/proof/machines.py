"""What can happen to the machines below: a server's clock, disk and data, and the wires."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.faults.clocks import ClockedServer
from tests.servers import Redis

from .link import Link
from .nemesis import Fault

__all__ = ["of_clock", "of_data", "of_disk", "of_link"]


def of_clock(server: ClockedServer, step: float, *, forward: bool) -> list[Fault]:
    """Return what can happen to a server's clock: turned by ``step``, and left so."""
    shown = 0.0

    def turn(seconds: float) -> Callable[[float], None]:
        def do(_: float) -> None:
            nonlocal shown
            shown += seconds
            server.turn(shown)

        return do

    back = Fault("clock set back", turn(-step), store=True)
    return [back, Fault("clock set forward", turn(step), store=True)] if forward else [back]


def of_disk(full: Callable[[], AbstractContextManager[None]], ttl: float) -> list[Fault]:
    """Return what can happen to a disk: it is full for a while."""

    def do(seconds: float) -> None:
        with full():
            time.sleep(seconds)

    return [Fault("disk full", do, (0.7 * ttl, 1.5 * ttl), store=True)]


def of_data(server: Redis) -> list[Fault]:
    """Return what can happen to the data of a server."""

    def flush(_: float) -> None:
        server.execute("FLUSHALL")

    def crash(_: float) -> None:
        server.kill()
        server.wipe()
        server.start()

    return [
        Fault("data flushed", flush, store=True),
        Fault("server killed and restarted empty", crash, store=True),
    ]


def of_link(link: Link, ttl: float) -> list[Fault]:
    """Return what can happen to the packets of all clients."""

    def lose(seconds: float) -> None:
        link.lose(0.3)
        time.sleep(seconds)
        link.mend()

    def cut(seconds: float) -> None:
        link.cut()
        time.sleep(seconds)
        link.mend()

    return [
        Fault("packets lost", lose, (0.5 * ttl, 2 * ttl), store=True),
        Fault("link down", cut, (0.2 * ttl, 1.5 * ttl), store=True),
    ]
