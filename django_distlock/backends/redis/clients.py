"""Asking a Redis from threads: each has a connection of its own.

Commands are packed once and sent on the thread's own connection, below redis-py's calls for single
commands, which cost several times as much. Nothing is resent that must not be done twice: every
command of ours may be, as it is done for one owner only, but a release tells less when it is.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from .location import Place
from .talks import Begin, Command, Talk, several

__all__ = ["Client", "Command", "NodeClient", "Wire", "carry_out"]

T = TypeVar("T")

FRESH = 1.0  # seconds after its last use in which a connection is taken to be open still


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


class Wire:
    """One connection to one Redis, used by one thread at a time.

    `send` and `receive` are for those who ask several servers at once; every answer has to be
    received, or the wire dropped.
    """

    def __init__(self, place: Place, limit: float) -> None:
        from redis.exceptions import RedisError, ResponseError

        self._place = place
        self._said, self._failed = ResponseError, RedisError
        self._busy = threading.Lock()
        self._connection = place.connection(limit)
        self._pack = _packer(self._connection)
        self._limit = limit
        self._used = 0.0

    def open(self, limit: float) -> None:
        """Connect if need be, and see that an idle connection was not closed by the server."""
        connection = self._connection
        now = time.monotonic()
        if connection.is_connected and now - self._used > FRESH:
            try:
                if connection.can_read(0):
                    connection.disconnect()  # an answer that nobody waited for
            except self._failed:
                connection.disconnect()
            self._limit = 0.0  # looking may have changed the socket's
        self._used = now
        if limit != self._limit:
            self._limit = limit
            connection.update_current_socket_timeout(limit)
        if not connection.is_connected:
            connection.socket_timeout = connection.socket_connect_timeout = limit
            self._place.direct(connection, limit)
            connection.connect()

    def send(self, commands: Sequence[Command], limit: float) -> None:
        """Send commands; ``limit`` counts for each step of sending and receiving."""
        self.open(limit)
        packed = [part for command in commands for part in self._pack(command)]
        self._connection.send_packed_command(packed, check_health=False)

    def receive(self) -> Any:
        """Return the next answer; raise it if it is an error of the server's."""
        return self._connection.read_response(disconnect_on_error=True)

    def ask(self, command: Command, limit: float) -> Any:
        """Send a command and return its answer, or raise it if it is an error of the server's."""
        with self._busy:
            connection, now = self._connection, time.monotonic()
            try:
                if now - self._used > FRESH or not connection.is_connected:
                    self.open(limit)
                elif limit != self._limit:
                    self._limit = limit
                    connection.update_current_socket_timeout(limit)
                self._used = now
                connection.send_packed_command(self._pack(command), check_health=False)
                return connection.read_response(disconnect_on_error=True)
            except self._said as error:
                if self._place.was_demoted(error):
                    connection.disconnect()
                raise
            except BaseException:
                connection.disconnect()
                raise

    def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read all answers; errors of the server's are among them."""
        with self._busy:
            connection = self._connection
            answers: list[Any] = []
            try:
                self.send(commands, limit)
                for _ in commands:
                    try:
                        answers.append(self.receive())
                    except self._said as error:
                        answers.append(error)
            except BaseException:
                connection.disconnect()
                raise
            if any(map(self._place.was_demoted, answers)):
                connection.disconnect()
            return answers

    def close_idle(self) -> None:
        """Close the connection, from any thread, unless it is in use now."""
        if self._busy.acquire(blocking=False):
            try:
                self._connection.disconnect()
            finally:
                self._busy.release()

    def drop(self) -> None:
        """Close the connection; the next command opens it anew."""
        self._connection.disconnect()


def _packer(connection: Any) -> Callable[[Command], Sequence[bytes]]:
    """Return what makes the bytes of a command of bytes, str and int."""
    try:
        from hiredis import pack_command
    except ImportError:
        pack = connection.pack_command
        return lambda command: pack(*command)
    # redis-py asks each word for its type before it calls the same function.
    return lambda command: (pack_command(command),)


class NodeClient:
    """A wire for each thread to one Redis."""

    def __init__(self, place: Place, limit: float) -> None:
        from redis.exceptions import ConnectionError

        self._cut_off = ConnectionError
        self.place = place
        self._limit = limit
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mine = threading.local()
        self._mutex = threading.Lock()
        self._all: weakref.WeakSet[Wire] = weakref.WeakSet()

    def wire(self) -> Wire:
        """Return this thread's wire."""
        if self._pid != os.getpid():  # forked behind Python's back, as uWSGI does
            _parked.append(self._all)
            self._reset()
        try:
            wire: Wire = self._mine.wire
        except AttributeError:
            wire = self._mine.wire = Wire(self.place, self._limit)
            with self._mutex:
                self._all.add(wire)
        return wire

    def ask(self, command: Command, limit: float, *, resend: bool = True) -> Any:
        wire = self.wire()
        try:
            return wire.ask(command, limit)
        except self._cut_off:
            if not resend:
                raise
            return wire.ask(command, limit)

    def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return self.converse(lambda: several(commands), limit, resend=resend)

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        wire = self.wire()
        try:
            return carry_out(begin(), wire.ask_all, limit)
        except self._cut_off:
            if not resend:
                raise
            # Closed by the server since it was last used, perhaps.
            return carry_out(begin(), wire.ask_all, limit)

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


# What a child inherited; closing it there would be seen by the parent's TLS, and costs nothing.
_parked: list[Any] = []
