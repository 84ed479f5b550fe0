"""One connection to one Redis, used by one thread at a time.

Commands are packed once and go out on the connection's own socket; answers are read by its own
parser. redis-py's calls for the same, which are made for any parser and any protocol, take twice as
long; they are used where it has another parser than that of hiredis.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from .location import Place
from .talks import Command, packer

__all__ = ["FRESH", "Wire"]

FRESH = 1.0  # seconds after its last use in which a connection is taken to be open still


class Wire:
    """One connection to one Redis, used by one thread at a time."""

    def __init__(self, place: Place, limit: float) -> None:
        from redis import exceptions as kinds

        self._place = place
        self._said, self._failed = kinds.ResponseError, kinds.RedisError
        self._cut_off, self._overdue = kinds.ConnectionError, kinds.TimeoutError
        self._connection = place.connection(limit)
        self._pack = packer(self._connection)
        self._limit = limit
        self._used = 0.0
        self._line: _Line | None = None

    @property
    def direct(self) -> bool:
        """Whether it is open, and read without redis-py."""
        return self._line is not None

    def _open(self, limit: float) -> None:
        """Connect if need be, and see that an idle connection was not closed by the server."""
        connection = self._connection
        now = monotonic()
        if connection.is_connected and now - self._used > FRESH:
            try:
                if connection.can_read(0):
                    self.drop()  # an answer that nobody waited for
            except self._failed:
                self.drop()
            self._limit = 0.0  # looking may have changed the socket's
        self._used = now
        if limit != self._limit:
            self._limit = limit
            connection.update_current_socket_timeout(limit)
        if not connection.is_connected:
            self._line = None
            connection.socket_timeout = connection.socket_connect_timeout = limit
            self._place.direct(connection, limit)
            connection.connect()
            self._line = _line_of(connection)

    def _send(self, packed: bytes, limit: float) -> None:
        """Send; ``limit`` counts for each step of sending and receiving."""
        now = monotonic()
        if self._line is None or now - self._used > FRESH:
            self._open(limit)
        elif limit != self._limit:
            self._limit = limit
            self._line[0].settimeout(limit)
        self._used = now
        if (line := self._line) is None:
            self._connection.send_packed_command([packed], check_health=False)
            return
        try:
            # At once: each call would let go of the interpreter, and wait for it behind others.
            line[0].sendall(packed)
        except TimeoutError as error:
            raise self._overdue(f"timeout writing to {self._place.shown}") from error
        except OSError as error:
            raise self._cut_off(f"error writing to {self._place.shown}: {error}") from error

    def _receive(self) -> Any:
        """Return the next answer, an error of the server's as any other."""
        line = self._line
        if line is None:
            try:
                return self._connection.read_response(disconnect_on_error=True)
            except self._said as error:
                return error
        sock, reader, nothing = line
        answer = reader.gets()
        while answer is nothing:
            try:
                some = sock.recv(65536)
            except TimeoutError as error:
                raise self._overdue(f"timeout reading from {self._place.shown}") from error
            except OSError as error:
                raise self._cut_off(f"error reading from {self._place.shown}: {error}") from error
            if not some:
                raise self._cut_off(f"connection closed by {self._place.shown}")
            reader.feed(some)
            answer = reader.gets()
        if type(answer) is int:
            return answer
        # What redis-py takes for the end of a connection is one here.
        if isinstance(answer, self._cut_off):
            raise answer
        if isinstance(answer, list) and answer and isinstance(answer[0], self._cut_off):
            raise answer[0]
        return answer

    def ask(self, command: Command | bytes, limit: float) -> Any:
        """Send a command, which may be packed already, and return its answer.

        Raises the answer if it is an error of the server's.
        """
        packed = command if isinstance(command, bytes) else self._pack((command,))
        try:
            self._send(packed, limit)
            answer = self._receive()
        except BaseException:
            self.drop()
            raise
        if isinstance(answer, self._said):
            if self._place.was_demoted(answer):
                self.drop()
            try:
                raise answer
            finally:
                del answer  # or the error would keep itself alive by its traceback
        return answer

    def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read all answers; errors of the server's are among them."""
        try:
            self._send(self._pack(commands), limit)
            answers = [self._receive() for _ in commands]
        except BaseException:
            self.drop()
            raise
        if any(map(self._place.was_demoted, answers)):
            self.drop()
        return answers

    def is_open(self) -> bool:
        """Return whether it is connected, as far as is known here."""
        return bool(self._connection.is_connected)

    def idle_for(self) -> float:
        """Return the seconds since its last use."""
        return monotonic() - self._used

    def drop(self) -> None:
        """Close the connection; the next command opens it anew."""
        self._line = None
        self._connection.disconnect()


_Line = tuple[Any, Any, Any]
"""The socket, the parser, and what the parser returns as long as an answer is not complete."""


def _line_of(connection: Any) -> _Line | None:
    """Return the line of a connection that is open; None where redis-py has to read itself.

    redis-py has no public name for either, so whatever is not as expected is left to it.
    """
    try:
        from hiredis import Reader
    except ImportError:
        return None
    sock = getattr(connection, "_sock", None)
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    # With protocol 3 there may be messages that are no answers.
    if sock is None or not isinstance(reader, Reader) or getattr(connection, "protocol", 0) != 2:
        return None
    return None if reader.has_data() else (sock, reader, reader.gets())
