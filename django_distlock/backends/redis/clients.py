"""Asking a Redis from threads: each has a connection of its own.

Commands are packed once and sent on the thread's own connection, below redis-py's calls for single
commands, which cost several times as much. Nothing is resent that must not be done twice: every
command of ours may be, as it is done for one owner only, but a release tells less when it is.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import getpid
from typing import Any, Protocol, TypeVar

from .location import Place
from .talks import Begin, Command, Talk
from .wires import Wire

__all__ = ["Client", "Command", "NodeClient", "carry_out"]

S = TypeVar("S")
T = TypeVar("T")


class Client(Protocol):
    """What the backend asks its Redis through, from threads."""

    def ask(self, command: Command, limit: float, *, resend: bool = True) -> Any:
        """Send a command and return its answer, or raise an error of redis-py."""

    def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read the answers; an error in an answer is one of them."""

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        """Carry out a talk; each of its steps may take ``limit`` seconds.

        With ``resend`` begun anew, once, on a connection that turned out to be closed.
        """

    def close_thread(self) -> None:
        """Close what this thread has open."""

    def close_idle(self) -> None:
        """Close what no thread uses now."""

    def close(self) -> None:
        """Close what all threads have open."""


class NodeClient:
    """A wire for each thread to one Redis."""

    def __init__(self, place: Place, limit: float) -> None:
        from redis.exceptions import ConnectionError

        self._cut_off = ConnectionError
        self.place = place
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._pid = getpid()
        self._mine = threading.local()
        self._mutex = threading.Lock()
        self._all: weakref.WeakSet[Wire] = weakref.WeakSet()

    def wire(self) -> Wire:
        """Return this thread's wire."""
        if self._pid != getpid():  # forked behind Python's back, as uWSGI does
            _parked.append(self._all)
            self._reset()
        try:
            wire: Wire = self._mine.wire
        except AttributeError:
            wire = self._mine.wire = Wire(self.place, self._limit)
            with self._mutex:
                self._all.add(wire)
        return wire

    def ask(self, command: Command | bytes, limit: float, *, resend: bool = True) -> Any:
        return self._carry(Wire.ask, command, limit, resend)

    def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return self._carry(Wire.ask_all, commands, limit, resend)

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        return self._carry(_talk, begin, limit, resend)

    def _carry(self, way: Callable[[Wire, S, float], T], what: S, limit: float, resend: bool) -> T:
        wire = self.wire()
        try:
            return way(wire, what, limit)
        except self._cut_off:
            if not resend:
                raise
            # Closed by the server since it was last used, perhaps.
            return way(wire, what, limit)

    def close_thread(self) -> None:
        with suppress(AttributeError):
            self._mine.wire.drop()
            del self._mine.wire

    def close_idle(self) -> None:
        with self._mutex:
            wires = list(self._all)
        for wire in wires:
            wire.close_idle()

    def close(self) -> None:
        with self._mutex:
            wires = list(self._all)
        for wire in wires:
            wire.drop()


def carry_out(
    talk: Talk[T], ask: Callable[[Sequence[Command], float], list[Any]], limit: float
) -> T:
    """Send what a talk yields, and send it the answers."""
    try:
        commands = next(talk)
        while True:
            commands = talk.send(ask(commands, limit))
    except StopIteration as stop:
        result: T = stop.value
        return result


def _talk(wire: Wire, begin: Begin[T], limit: float) -> T:
    return carry_out(begin(), wire.ask_all, limit)


# What a child inherited; closing it there would be seen by the parent's TLS, and costs nothing.
_parked: list[Any] = []
