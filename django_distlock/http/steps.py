"""One request, the opening of a stream and the reading of one, as steps for `core.flow`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, cast

from .clients import Http
from .messages import Answer, Request
from .streams import AsyncStream, Stream

__all__ = ["Ask", "Open", "Read"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask one of the servers, before ``ends``."""

    interruptible: ClassVar[bool] = True

    http: Http
    request: Request
    ends: float

    def do(self) -> Answer:
        return self.http.ask(self.request, max(self.ends - time.monotonic(), 0.001))

    async def ado(self) -> Answer:
        return await self.http.aask(self.request, max(self.ends - time.monotonic(), 0.001))


@dataclass(frozen=True, slots=True)
class Open:
    """Open a stream of lines."""

    interruptible: ClassVar[bool] = True

    http: Http
    request: Request
    limit: float

    def do(self) -> Stream:
        return self.http.open(self.request, self.limit)

    async def ado(self) -> AsyncStream:
        return await self.http.aopen(self.request, self.limit)


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next line of a stream; None if none comes within ``limit`` seconds."""

    interruptible: ClassVar[bool] = True

    stream: Stream | AsyncStream
    limit: float

    def do(self) -> bytes | None:
        return cast("Stream", self.stream).line(self.limit)

    async def ado(self) -> bytes | None:
        return await cast("AsyncStream", self.stream).aline(self.limit)
