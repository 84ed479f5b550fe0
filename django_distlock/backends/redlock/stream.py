"""A socket that is written and read without redis-py, where hiredis is there to read answers.

A socket with a time limit asks the system whether it is ready before each call. This one tries, and
asks only when it was not.
"""

from __future__ import annotations

import select
from typing import Any

__all__ = ["Stream", "stream"]

_SIZE = 65536
_MISSING = object()


class Stream:
    """The socket of a connection that is open. Errors are those that redis-py raises."""

    def __init__(self, sock: Any, reader: Any) -> None:
        from redis import exceptions

        self._errors, self._cut_off = exceptions, exceptions.ConnectionError
        sock.setblocking(False)
        self._sock, self._write, self._receive = sock, sock.send, sock.recv
        self._feed, self._next = reader.feed, reader.gets
        ready = select.poll()
        ready.register(sock, select.POLLIN)
        self._ready = ready.poll

    def send(self, packed: bytes, limit: float) -> None:
        """Send all, though the buffers of the system are full for up to ``limit`` seconds."""
        try:
            try:
                sent = self._write(packed)
            except BlockingIOError:
                sent = 0
            if sent < len(packed):
                self._sock.settimeout(limit)
                self._sock.sendall(packed[sent:])
                self._sock.setblocking(False)
        except TimeoutError as error:
            raise self._errors.TimeoutError("Timeout writing to socket") from error
        except OSError as error:
            raise self._errors.ConnectionError(f"Error while writing to socket: {error}") from error

    def read(self, limit: float) -> Any:
        """Return the next answer, which may be an error of the server's."""
        answer = self._next()
        while answer is _MISSING:
            try:
                data = self._receive(_SIZE)
            except BlockingIOError:
                if not self._ready(limit * 1000):
                    raise self._errors.TimeoutError("Timeout reading from socket") from None
                continue
            except OSError as error:
                raise self._errors.ConnectionError(
                    f"Error while reading from socket: {error}"
                ) from error
            if not data:
                raise self._errors.ConnectionError("Connection closed by server.")
            self._feed(data)
            answer = self._next()
        if isinstance(answer, self._cut_off):
            raise answer  # the server is starting
        return answer


def stream(connection: Any, kind: str) -> Stream | None:
    """Return the stream of an open connection; None where it has to be left to redis-py."""
    sock = getattr(connection, "_sock", None)
    parse = getattr(getattr(connection, "_parser", None), "parse_error", None)
    if kind == "tls" or sock is None or parse is None or not hasattr(select, "poll"):
        return None
    try:
        import hiredis
    except ImportError:
        return None
    from redis.exceptions import InvalidResponse

    reader = hiredis.Reader(protocolError=InvalidResponse, replyError=parse, notEnoughData=_MISSING)
    return Stream(sock, reader)
