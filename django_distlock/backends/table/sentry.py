"""A limit on how long a database driver may wait for its server.

A server that hangs without closing its connections (stopped, swapped out, cut off) keeps a driver
in a blocking read without end, and drivers offer a limit only when connecting. So a thread checks
after the statements under way and shuts the socket of one that is overdue: the driver then fails
at once.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

from ...core.clock import GRACE
from ...core.descriptors import descriptor_of
from ...core.fork import after_fork
from ...core.threads import Mutex
from ...core.worker import begin

__all__ = ["Watch", "twin_of", "within"]

TICK = 0.05  # seconds between two checks: what a limit may be exceeded by
PAUSE = 0.25  # seconds between two checks from which on this process, or the machine, stood still
IDLE_TICKS = 100  # checks with nothing under way after which the thread ends


@dataclass(slots=True, weakref_slot=True)
class Watch:
    """A statement under way; ``cut`` tells that its connection was shut for being overdue.

    ``spared`` tells that it was given more time, as this process stood still.
    """

    descriptor: int
    inode: int
    end: float
    cut: bool = field(default=False)
    spared: bool = field(default=False)


class _Sentry:
    def __init__(self) -> None:
        self.mutex = Mutex()
        # By descriptor, as a connection has one statement under way; and weakly: a statement that a
        # signal handler interrupted may end without a word, and its connection is used again.
        self.watches: dict[int, weakref.ref[Watch]] = {}
        self.running = False

    def add(self, watch: Watch) -> None:
        with self.mutex:
            self.watches[watch.descriptor] = weakref.ref(watch)
            if not self.running:
                thread = threading.Thread(target=self._run, name="distlock-sentry", daemon=True)
                self.running = begin(thread) is not None

    def remove(self, watch: Watch) -> None:
        # Under the mutex: after this the socket is not shut, and may be used for something else.
        with self.mutex:
            known = self.watches.get(watch.descriptor)
            if known is not None and known() is watch:
                del self.watches[watch.descriptor]

    def _run(self) -> None:
        idle, now = 0, time.monotonic()
        while True:
            time.sleep(TICK)
            with self.mutex:
                before, now = now, time.monotonic()
                for descriptor, known in list(self.watches.items()):
                    watch = known()
                    if watch is not None and now >= watch.end:
                        if now - before > PAUSE and not watch.spared:
                            # The answer may be there, or about to come, and was not read for lack
                            # of time. Once only, as a starved machine is late at each check.
                            watch.spared, watch.end = True, now + GRACE
                        else:
                            watch.cut = True
                            _shut(watch)
                    if watch is None or watch.cut:
                        del self.watches[descriptor]
                    del watch  # else it would be kept until the next check
                idle = 0 if self.watches else idle + 1
                if idle > IDLE_TICKS:
                    self.running = False
                    return


def _shut(watch: Watch) -> None:
    """Shut the connection of a descriptor that the driver keeps and will close itself."""
    try:
        with socket.socket(fileno=os.dup(watch.descriptor)) as twin:
            # A signal handler that raises can leave the watch of a statement behind. The connection
            # is then closed, and its descriptor may belong to another connection.
            if os.fstat(twin.fileno()).st_ino == watch.inode:
                twin.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed or not connected already, so nobody waits on it


def twin_of(driver_connection: Any) -> socket.socket | None:
    """Return a socket by which a connection can be shut while another thread waits on it.

    Asked for before: drivers answer no questions while they wait. It has a descriptor of its own,
    which can be no stranger's later, and has to be closed, too.
    """
    descriptor = descriptor_of(driver_connection)
    return None if descriptor is None else socket.socket(fileno=os.dup(descriptor))


_sentry = _Sentry()


class within:
    """Let what happens in the block wait ``seconds`` at most for ``driver_connection``'s server.

    Gives the Watch, or None where there is no socket to wait for (SQLite; a dead connection).
    """

    __slots__ = ("_watch",)

    def __init__(self, driver_connection: Any, seconds: float) -> None:
        descriptor = descriptor_of(driver_connection)
        self._watch = None
        if descriptor is not None:
            try:
                inode = os.fstat(descriptor).st_ino
            except OSError:
                return  # the descriptor is closed, which the statement will report
            self._watch = Watch(descriptor, inode, time.monotonic() + seconds)

    def __enter__(self) -> Watch | None:
        if self._watch is not None:
            _sentry.add(self._watch)
        return self._watch

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            _sentry.remove(self._watch)


def _forget_parent() -> None:
    global _sentry
    _sentry = _Sentry()


after_fork(_forget_parent)
