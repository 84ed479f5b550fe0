"""One connection to one server, for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress

from .framing import SIZE, Framing, Read
from .messages import Answer, Endpoint, HttpError, Request

__all__ = ["AsyncWire"]


class AsyncWire:
    """A connection, lent to one task at a time."""

    def __init__(
        self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...], tls: ssl.SSLContext | None
    ) -> None:
        self.endpoint = endpoint
        self._headers = headers
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._framing = Framing(endpoint, headers)

    async def ask(self, request: Request, limit: float) -> Answer:
        """Send a request and return its answer."""
        answer = await self._begin(request, limit, Framing.answer)
        if not self._framing.reusable:
            self.drop()
        return answer

    async def open(self, request: Request, limit: float) -> Answer:
        """Send a request whose answer is a stream of lines; return the head of the answer."""
        return await self._begin(request, limit, Framing.head)

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

    async def _begin(self, request: Request, limit: float, read: Read) -> Answer:
        ends = time.monotonic() + limit
        kept = self._is_usable()
        try:
            return await self._once(request, limit, read)
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
            return await self._once(request, limit, read)
        except BaseException:
            self.drop()
            raise

    async def _once(self, request: Request, limit: float, read: Read) -> Answer:
        sent = False
        try:
            async with asyncio.timeout(limit):
                reader, writer = self._streams or await self._connect()
                packed = self._framing.pack(request)
                sent = True
                writer.write(packed)
                reading = read(self._framing)
                next(reading)
                while True:
                    data = await reader.read(SIZE)
                    try:
                        reading.send(data)
                    except StopIteration as done:  # no coroutine may be left by it
                        answer: Answer = done.value
                        return answer
        except TimeoutError as error:
            text = f"{self.endpoint} did not answer within {round(limit, 2):g} s"
            raise HttpError(text, sent=sent) from error
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            raise HttpError(f"{self.endpoint}: {error}", sent=sent) from error

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._framing = Framing(self.endpoint, self._headers)
        self._streams = await asyncio.open_connection(
            self.endpoint.host, self.endpoint.port, ssl=self._tls
        )
        return self._streams

    def _is_usable(self) -> bool:
        """Tell whether a kept connection can be used; drop one that was closed meanwhile."""
        if self._streams is None:
            return False
        reader, writer = self._streams
        if reader.at_eof() or writer.is_closing():
            self.drop()
        return self._streams is not None

    def drop(self) -> None:
        """Close the connection; the next request opens it anew."""
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
