"""What is done to the clients and to the store, and when: drawn from a seed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.proxy import Proxy
from tests.servers import Server

from .history import Log
from .plans import MODES

__all__ = ["Clients", "Fault", "of_clients", "of_proxy", "of_server", "rage"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault: a function that does it, waits for ``seconds`` if it lasts, and mends it.

    ``store``: whether the store, or the way to it, is away meanwhile.
    """

    kind: str
    do: Callable[[float], Any]
    seconds: tuple[float, float] = (0.0, 0.0)
    store: bool = False


class Clients:
    """The client processes of now, by their names; a killed one is followed by another."""

    def __init__(self, spawn: Callable[[str, int], int], chance: random.Random) -> None:
        self._spawn = spawn
        self._chance = chance
        self._born = 0
        self.pids: dict[str, int] = {}

    def add(self) -> None:
        """Begin one more."""
        self._born += 1
        proc = f"client-{self._born}"
        seed = self._chance.randrange(1 << 30) * 2 + self._born % 2  # threads and loops by turns
        self.pids[proc] = self._spawn(proc, seed)

    def kill(self, _: float) -> str:
        """Kill one with SIGKILL, and begin another."""
        proc = self._chance.choice(sorted(self.pids))
        os.kill(self.pids.pop(proc), signal.SIGKILL)
        self.add()
        return proc

    def stop(self, seconds: float) -> str:
        """Let one stand still for a while."""
        proc = self._chance.choice(sorted(self.pids))
        os.kill(self.pids[proc], signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.pids[proc], signal.SIGCONT)
        return proc


def of_clients(
    clients: Clients, alias: str, ttl: float, log: Log, chance: random.Random
) -> list[Fault]:
    """Return what can happen to clients and to their locks, whatever the store."""

    def force(_: float) -> None:
        from django_distlock import LockBackendError, LockNotHeldError, locks

        name = chance.choice(list(MODES))
        backend = locks[alias]
        try:
            held = backend.call("holders", name, name=name)
        except LockBackendError:
            return  # the store is not yet back: nothing was broken
        if not held:
            return
        info = chance.choice(held)
        with log.call("break", name, token=info.fencing_token) as note:
            try:
                backend.force_release(name, fencing_token=info.fencing_token)
            except LockNotHeldError as error:
                note.say("fail", error=repr(error)[:300])
            except LockBackendError as error:
                note.say("info", error=repr(error)[:300])

    return [
        Fault("client killed", clients.kill),
        Fault("client paused for long", clients.stop, (1.5 * ttl, 2.5 * ttl)),
        Fault("client paused for short", clients.stop, (0.05 * ttl, 0.4 * ttl)),
        Fault("lock force-released", force),
    ]


def of_server(server: Server, ttl: float) -> list[Fault]:
    """Return what can happen to a server that keeps its data."""

    def pause(seconds: float) -> None:
        server.pause()
        time.sleep(seconds)
        server.resume()

    def crash(_: float) -> None:
        server.kill()
        server.start()

    return [
        Fault("server paused for short", pause, (0.1 * ttl, 0.4 * ttl), store=True),
        Fault("server paused for long", pause, (1.5 * ttl, 2 * ttl), store=True),
        Fault("server killed and restarted", crash, store=True),
    ]


def of_proxy(proxy: Proxy, ttl: float) -> list[Fault]:
    """Return what can happen on the way to a server."""

    def lasting(begin: Callable[[], None]) -> Callable[[float], None]:
        def do(seconds: float) -> None:
            begin()
            time.sleep(seconds)
            proxy.mend()

        return do

    def resets(seconds: float) -> None:
        # Several: that a holder checks its lease just after one is seldom.
        for _ in range(8):
            proxy.reset()
            time.sleep(seconds)

    return [
        Fault("connections reset", resets, (0.1 * ttl, 0.3 * ttl), store=True),
        Fault("connections half closed", lambda _: proxy.half_close(), store=True),
        Fault("network cut", lasting(proxy.cut), (0.2 * ttl, 1.5 * ttl), store=True),
        Fault("network silent", lasting(proxy.silence), (0.2 * ttl, 1.5 * ttl), store=True),
        Fault("network slow", lasting(lambda: proxy.delay(ttl / 20)), (0.5 * ttl, ttl), store=True),
    ]


def rage(
    faults: Sequence[Fault],
    seconds: float,
    ttl: float,
    log: Log,
    chance: random.Random,
    enough: Callable[[], bool],
) -> None:
    """Do one fault after the other: each kind once, for so many seconds, and until it was enough.

    In quick succession at first. Then there is more time between, some of it long enough for all to
    have recovered: whether waiters are woken in time can only be asked while the store is there.
    """
    ends = time.monotonic() + seconds
    for number, fault in enumerate(_turns(faults, chance)):
        over = time.monotonic() >= ends
        if number >= len(faults) and over and enough():
            return
        most = 0.6 * ttl if number < len(faults) or over else 8 * ttl
        time.sleep(chance.uniform(0.3 * ttl, most))
        with log.call("fault", "", kind=fault.kind, store=fault.store) as note:
            note.say("ok", whom=fault.do(chance.uniform(*fault.seconds)))


def _turns(faults: Sequence[Fault], chance: random.Random) -> Iterator[Fault]:
    while True:
        yield from chance.sample(list(faults), len(faults))
