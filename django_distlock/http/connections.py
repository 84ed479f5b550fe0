"""One connection to one server, for threads."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress

from ..core.clock import Deadline
from .addresses import look_up
from .framing import SIZE, Framing
from .messages import FRESH, Answer, Endpoint, HttpError, Request, overdue

__all__ = ["HttpConnection", "is_readable"]


class HttpConnection:
    """A connection, lent to one thread at a time."""

    def __init__(
        self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...], tls: ssl.SSLContext | None
    ) -> None:
        self.endpoint = endpoint
        self._headers = headers
        self._tls = tls
        self._sock: socket.socket | None = None
        self._used = 0.0
        self._framing = Framing(endpoint, headers)

    def ask(self, request: Request, limit: float) -> Answer:
        """Send a request and return its answer."""
        answer = self._begin(request, limit, whole=True)
        self._used = time.monotonic()
        if not self._framing.reusable:
            self.drop()
        return answer

    def open(self, request: Request, limit: float) -> Answer:
        """Send a request whose answer is a stream of lines; return the head of the answer."""
        return self._begin(request, limit, whole=False)

    def lines(self, limit: float) -> list[bytes]:
        """Return the next lines of the stream, none if nothing came within ``limit`` seconds."""
        lines = self._framing.lines()
        ends = time.monotonic() + limit
        while not lines:
            if self._sock is None:
                raise HttpError(f"the stream of {self.endpoint} is closed")
            try:
                data = _receive(self._sock, ends)
            except TimeoutError:
                return []
            except OSError as error:
                raise HttpError(f"{self.endpoint}: {error}") from error
            lines = self._framing.lines(data)
        return lines

    def _begin(self, request: Request, limit: float, *, whole: bool) -> Answer:
        ends = time.monotonic() + limit
        kept = self._is_usable()
        try:
            return self._once(request, ends, limit, whole=whole)
        except HttpError as error:
            self.drop()
            # Closed by the server since it was last used, perhaps: one more connection is tried.
            if not (kept and error.sent and request.again) or self._framing.began:
                raise
            if time.monotonic() >= ends:
                raise
        except BaseException:
            self.drop()
            raise
        try:
            return self._once(request, ends, limit, whole=whole)
        except BaseException:
            self.drop()
            raise

    def _once(self, request: Request, ends: float, limit: float, *, whole: bool) -> Answer:
        sent, deadline = False, Deadline(ends, time.monotonic)
        try:
            sock = self._sock or self._connect(ends)
            packed = self._framing.pack(request)
            sent = True
            sock.settimeout(max(ends - time.monotonic(), 0.001))
            sock.sendall(packed)
            framing = self._framing
            while not (framing.is_whole if whole else framing.has_head):
                try:
                    framing.feed(_receive(sock, deadline.at))
                except TimeoutError:
                    if not deadline.put_off():
                        raise
            return framing.answer()
        except TimeoutError as error:
            raise overdue(self.endpoint, limit, sent=sent) from error
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            raise self._framing.failure(error, sent=sent) from error

    def _connect(self, ends: float) -> socket.socket:
        self._framing = Framing(self.endpoint, self._headers)
        sock = self._reach(ends)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(max(ends - time.monotonic(), 0.001))
                sock = self._tls.wrap_socket(sock, server_hostname=self.endpoint.host)
        except BaseException:
            sock.close()
            raise
        self._sock = sock
        return sock

    def _reach(self, ends: float) -> socket.socket:
        """Connect to the first address of the host that answers; they share the time left."""
        limit = max(ends - time.monotonic(), 0.001)
        found = look_up(self.endpoint.host, self.endpoint.port, limit)
        for number, (family, kind, protocol, _, address) in enumerate(found):
            last = number == len(found) - 1
            left = max(ends - time.monotonic(), 0.001)
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(left / (len(found) - number))
                sock.connect(address)
                return sock
            except OSError:
                sock.close()
                if last:
                    raise
            except BaseException:
                sock.close()
                raise
        raise OSError("the host has no address")

    def _is_usable(self) -> bool:
        """Return whether a kept connection can be used; drop one that was closed meanwhile."""
        if self._sock is None:
            return False
        # Nothing is owed: what can be read is the end, or not for us.
        if time.monotonic() - self._used > FRESH or is_readable(self._sock):
            self.drop()
        return self._sock is not None

    def drop(self) -> None:
        """Close the connection; the next request opens it again."""
        sock, self._sock = self._sock, None
        if sock is not None:
            with suppress(OSError):
                sock.close()


def is_readable(sock: socket.socket) -> bool:
    """Return whether there is something to read, or the end of it; closed here is an end, too."""
    if sock.fileno() < 0:
        return True
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    return bool(ready.poll(0))


def _receive(sock: socket.socket, ends: float) -> bytes:
    sock.settimeout(max(ends - time.monotonic(), 0.001))
    return sock.recv(SIZE)
