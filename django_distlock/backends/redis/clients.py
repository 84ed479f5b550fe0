"""Asking a Redis from threads: they share the connections of the process.

A connection is lent for one command, or for a wait. So whoever asks while another one waits, the
handler of a signal on the same thread too, gets a connection of its own. Commands are packed once
and sent below redis-py's calls for single commands, which cost several times as much. Every command
of ours may be sent twice, as it is done for one owner only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from ...core.fork import after_fork, park
from .location import Place
from .talks import Begin, Command, Talk
from .wires import FRESH, Wire

__all__ = ["Client", "Command", "NodeClient", "carry_out"]

S = TypeVar("S")
T = TypeVar("T")

MOST_IDLE = 50  # connections that are kept for later
IDLE = 60.0  # seconds without use after which one of them is closed
STALE = 1.0  # seconds at most that an answer is waited for on a connection that was idle


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

    def nodes(self, limit: float) -> list[NodeClient]:
        """Return the client of each server that takes writes."""

    def close_idle(self) -> None:
        """Close what no thread uses now."""

    def close(self) -> None:
        """Close what all threads have open."""


class NodeClient:
    """Wires to one Redis, each lent to one thread at a time."""

    def __init__(self, place: Place, limit: float) -> None:
        from redis.exceptions import ConnectionError, ReadOnlyError, TimeoutError

        self._again = (ConnectionError, ReadOnlyError, TimeoutError)
        self._cut_off, self._read_only, self._overdue = ConnectionError, ReadOnlyError, TimeoutError
        self.place = place
        self._limit = limit
        self._reset()
        after_fork(self._forget_parent)

    def _reset(self) -> None:
        self._idle: deque[Wire] = deque()
        self._closed = False

    def _forget_parent(self) -> None:
        park(self._idle)
        self._reset()

    def _lend(self) -> Wire:
        """Return a wire that nobody else uses until it is given back: the one used last."""
        try:
            return self._idle.pop()
        except IndexError:
            return Wire(self.place, self._limit)

    def _give_back(self, wire: Wire) -> None:
        if self._closed or len(self._idle) >= MOST_IDLE:
            wire.drop()
            return
        self._idle.append(wire)
        # The one that was not needed for longest lies at the other end.
        with suppress(IndexError):  # another thread took it
            if self._idle[0].idle_for() > IDLE:
                self._idle.popleft().drop()

    def ask(self, command: Command | bytes, limit: float, *, resend: bool = True) -> Any:
        return self._carry(Wire.ask, command, limit, resend)

    def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return self._carry(Wire.ask_all, commands, limit, resend)

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        return self._carry(_talk, begin, limit, resend)

    def _carry(self, way: Callable[[Wire, S, float], T], what: S, limit: float, resend: bool) -> T:
        wire = self._lend()
        try:
            # One that was idle may have been forgotten by what stands between, which says nothing.
            stale = wire.is_open() and wire.idle_for() > FRESH
            first = min(limit / 2, STALE) if stale else limit
            try:
                return way(wire, what, first)
            except self._again as error:
                overdue = isinstance(error, self._overdue)
                if isinstance(error, self._read_only):
                    wire.drop()  # it was the master once: the name may lead to another by now
                elif overdue and not stale:
                    raise
                elif not resend:
                    raise self._cut_off(str(error)) from error
            return way(wire, what, limit - first if stale else limit)
        finally:
            self._give_back(wire)

    def nodes(self, limit: float) -> list[NodeClient]:
        return [self]

    def close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().drop()

    def close(self) -> None:
        self._closed = True
        self.close_idle()


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
