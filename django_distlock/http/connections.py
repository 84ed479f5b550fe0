"""One connection to one server, for threads and for event loops, and a stream of lines on one."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..core.clock import Deadline
from ..core.loops import within
from .addresses import alook_up, look_up
from .framing import SIZE, Framing
from .messages import FRESH, Answer, Endpoint, HttpError, Request, overdue

__all__ = ["AsyncHttpConnection", "AsyncStream", "HttpConnection", "Stream", "is_readable"]


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


class _Reader(asyncio.StreamReader):
    """Tells whether anything has come that was not read."""

    def __init__(self) -> None:
        super().__init__(limit=SIZE)
        self.unread = 0

    def feed_data(self, data: Any) -> None:
        self.unread += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.unread -= len(data)
        return data


class AsyncHttpConnection:
    """A connection, lent to one task at a time."""

    def __init__(
        self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...], tls: ssl.SSLContext | None
    ) -> None:
        self.endpoint = endpoint
        self._headers = headers
        self._tls = tls
        self._streams: tuple[_Reader, asyncio.StreamWriter] | None = None
        self._used = 0.0
        self._framing = Framing(endpoint, headers)

    async def ask(self, request: Request, limit: float) -> Answer:
        """Send a request and return its answer."""
        answer = await self._begin(request, limit, whole=True)
        self._used = time.monotonic()
        if not self._framing.reusable:
            self.drop()
        return answer

    async def open(self, request: Request, limit: float) -> Answer:
        """Send a request whose answer is a stream of lines; return the head of the answer."""
        return await self._begin(request, limit, whole=False)

    async def lines(self, limit: float) -> list[bytes]:
        """Return the next lines of the stream, none if nothing came within ``limit`` seconds."""
        lines = self._framing.lines()
        try:
            async with asyncio.timeout(limit):
                while not lines:
                    if self._streams is None:
                        raise HttpError(f"the stream of {self.endpoint} is closed")
                    lines = self._framing.lines(await self._streams[0].read(SIZE))
        except TimeoutError:
            return []
        except OSError as error:
            raise HttpError(f"{self.endpoint}: {error}") from error
        return lines

    async def _begin(self, request: Request, limit: float, *, whole: bool) -> Answer:
        ends = time.monotonic() + limit
        kept = self._is_usable()
        try:
            return await self._once(request, limit, whole=whole)
        except HttpError as error:
            self.drop()
            # Closed by the server since it was last used, perhaps: one more connection is tried.
            if not (kept and error.sent and request.again) or self._framing.began:
                raise
            if (limit := ends - time.monotonic()) <= 0:
                raise
        except BaseException:
            self.drop()
            raise
        try:
            return await self._once(request, limit, whole=whole)
        except BaseException:
            self.drop()
            raise

    async def _once(self, request: Request, limit: float, *, whole: bool) -> Answer:
        sent = False
        ends = time.monotonic() + limit
        try:
            async with within(limit):
                reader, writer = self._streams or await self._connect(ends)
                packed = self._framing.pack(request)
                sent = True
                writer.write(packed)
                framing = self._framing
                while not (framing.is_whole if whole else framing.has_head):
                    framing.feed(await reader.read(SIZE))
                return framing.answer()
        except TimeoutError as error:
            raise overdue(self.endpoint, limit, sent=sent) from error
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            raise self._framing.failure(error, sent=sent) from error

    async def _connect(self, ends: float) -> tuple[_Reader, asyncio.StreamWriter]:
        """Connect to the first address of the host that answers; they share the time left."""
        self._framing = Framing(self.endpoint, self._headers)
        host, port = self.endpoint.host, self.endpoint.port
        found = await alook_up(host, port, max(ends - time.monotonic(), 0.001))
        addresses = list(dict.fromkeys(address[0] for *_, address in found))
        for number, address in enumerate(addresses, 1):
            share = max(ends - time.monotonic(), 0.001) / (len(addresses) - number + 1)
            try:
                async with within(share):
                    return await self._open(str(address))
            except OSError:  # also when its time was up
                if number == len(addresses):
                    raise
        raise OSError("the host has no address")

    async def _open(self, address: str) -> tuple[_Reader, asyncio.StreamWriter]:
        # As `asyncio.open_connection` does it, with a reader of ours.
        loop = asyncio.get_running_loop()
        reader = _Reader()
        protocol = asyncio.StreamReaderProtocol(reader)
        name = None if self._tls is None else self.endpoint.host
        transport, _ = await loop.create_connection(
            lambda: protocol, address, self.endpoint.port, ssl=self._tls, server_hostname=name
        )
        self._streams = reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        return self._streams

    def _is_usable(self) -> bool:
        """Return whether a kept connection can be used; drop one that was closed meanwhile."""
        if self._streams is None:
            return False
        reader, writer = self._streams
        sock = writer.get_extra_info("socket")
        # Nothing is owed: what was read, or can be, is the end, or not for us.
        unasked = bool(reader.unread) or reader.at_eof() or is_readable(sock)
        if unasked or writer.is_closing() or time.monotonic() - self._used > FRESH:
            self.drop()
        return self._streams is not None

    def drop(self) -> None:
        """Close the connection; the next request opens it again."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()

    async def close(self) -> None:
        """Close the connection and see it closed."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with suppress(OSError, asyncio.TimeoutError):
                await streams[1].wait_closed()


class Stream:
    """The answer to one request, which goes on as lines. Close it."""

    def __init__(self, head: Answer, connection: HttpConnection, done: Callable[[], None]) -> None:
        self.head = head
        self._connection = connection
        self._done = done
        self._lines: deque[bytes] = deque()
        self._open = True

    def line(self, limit: float) -> bytes | None:
        """Return the next line; None if none came within ``limit`` seconds."""
        if not self._lines:
            self._lines.extend(self._connection.lines(limit))
        return self._lines.popleft() if self._lines else None

    def close(self) -> None:
        """End the stream."""
        if self._open:
            self._open = False
            try:
                self._connection.drop()
            finally:
                self._done()


class AsyncStream:
    """The answer to one request, which goes on as lines, on an event loop. Close it.

    From another thread `leave` it first: its loop may never come to close it.
    """

    def __init__(
        self, head: Answer, connection: AsyncHttpConnection, done: Callable[[], None]
    ) -> None:
        self.head = head
        self._connection = connection
        self._done = done
        self._lines: deque[bytes] = deque()
        self._open = True

    async def aline(self, limit: float) -> bytes | None:
        """Return the next line; None if none came within ``limit`` seconds."""
        if not self._lines:
            self._lines.extend(await self._connection.lines(limit))
        return self._lines.popleft() if self._lines else None

    def leave(self) -> None:
        """Give its permit to another stream; from any thread."""
        if self._open:
            self._open = False
            self._done()

    def close(self) -> None:
        """End the stream."""
        try:
            self.leave()
        finally:
            self._connection.drop()
