"""Asking one of several equal servers: from threads, from event loops, and as steps of a flow."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from ..core.fork import after_fork
from ..core.loops import PerLoop
from ..core.threads import Permits
from .connections import AsyncHttpConnection, AsyncStream, HttpConnection, Stream
from .messages import Answer, Endpoint, HttpError, Request
from .pools import LoopPool, Pool
from .servers import Route, Servers

__all__ = ["Ask", "Full", "Http", "Open", "Read"]

CROWDED = 5.0
"""Seconds without a waiting request after a server has turned a new connection away: such requests
keep connections for long, and a renewal needs one."""


class Full(HttpError):
    """As many requests of this process wait in the server as may; nothing was sent."""


class Http:
    """Requests to one of several equal servers, over connections that are kept.

    ``headers`` go with every request; ``tls`` is for the endpoints with https, by default with the
    machine's certificates. At most ``waiting`` requests that the server may hold back, and streams,
    are under way at once.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        waiting: int = 50,
    ) -> None:
        self._servers = Servers(endpoints)
        self._headers = tuple((headers or {}).items())
        self._tls = tls
        self._waiting = waiting
        self._permits = Permits(waiting)
        self._crowded_until = 0.0
        after_fork(self._forget_parent)
        self._pool = Pool(lambda to: HttpConnection(to, self._headers, self._context(to)))
        self._loops = PerLoop(
            lambda: LoopPool(lambda to: AsyncHttpConnection(to, self._headers, self._context(to)))
        )

    # -- from threads ------------------------------------------------------------------------------

    def ask(self, request: Request, limit: float) -> Answer:
        """Send a request and return the answer, of whatever status.

        The servers are asked one after the other, within ``limit`` seconds in all, until one
        answers. Raises HttpError when none did, and Full when too many are waiting.
        """
        with self._permit(request):
            route = Route(self._servers, request, limit)
            while (to := route.next()) is not None:
                connection = self._pool.lend(to[0])
                try:
                    answer = connection.ask(request, to[1])
                except HttpError as error:
                    self._failed(route, error)
                    continue
                self._pool.give_back(connection)
                if route.took(answer):
                    return answer
            return route.ending()

    def open(self, request: Request, limit: float) -> Stream:
        """Send a request whose answer is a stream of lines; its head may take ``limit`` seconds."""
        done = self._take_permit()
        try:
            route = Route(self._servers, request, limit)
            while (to := route.next()) is not None:
                connection = self._pool.make(to[0])
                try:
                    head = connection.open(request, to[1])
                except HttpError as error:
                    self._failed(route, error)
                    continue
                if route.took(head):
                    return Stream(head, connection, done)
                connection.drop()
            raise HttpError(f"status {route.ending().status}")
        except BaseException:
            done()
            raise

    # -- from event loops --------------------------------------------------------------------------

    async def aask(self, request: Request, limit: float) -> Answer:
        """Ask as `ask`."""
        with self._permit(request):
            pool = await self._loops.mine()
            route = Route(self._servers, request, limit)
            async with pool.reserve(request, limit):
                while (to := route.next()) is not None:
                    connection = pool.lend(to[0])
                    try:
                        answer = await connection.ask(request, to[1])
                    except HttpError as error:
                        self._failed(route, error)
                        continue
                    await pool.give_back(connection)
                    if route.took(answer):
                        return answer
                return route.ending()

    async def aopen(self, request: Request, limit: float) -> AsyncStream:
        """Open as `open`."""
        done = self._take_permit()
        try:
            pool = await self._loops.mine()
            route = Route(self._servers, request, limit)
            while (to := route.next()) is not None:
                connection = pool.make(to[0])
                try:
                    head = await connection.open(request, to[1])
                except HttpError as error:
                    self._failed(route, error)
                    continue
                if route.took(head):
                    return AsyncStream(head, connection, done)
                connection.drop()
            raise HttpError(f"status {route.ending().status}")
        except BaseException:
            done()
            raise

    # -- both --------------------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether a server has ever answered this process: then it is one, and can be reached."""
        return self._servers.answered

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if not endpoint.tls:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _failed(self, route: Route, error: HttpError) -> None:
        route.failed(error)
        if error.turned_away and self.answered:
            self._crowded_until = time.monotonic() + CROWDED

    def _take_permit(self) -> Callable[[], None]:
        """Take one of the permits of requests that wait; return how to give it back."""
        if time.monotonic() < self._crowded_until:
            raise Full("the server has turned a connection away", sent=False)
        permits = self._permits
        permit = permits.take()
        if permit is None:
            raise Full(f"{self._waiting} requests wait already", sent=False)
        return partial(permits.release, permit)

    @contextmanager
    def _permit(self, request: Request) -> Iterator[None]:
        if request.wait <= 0:
            yield
            return
        done = self._take_permit()
        try:
            yield
        finally:
            done()

    def close_idle(self) -> None:
        """Close the connections that are not in use."""
        self._pool.close_idle()
        self._loops.each(LoopPool.close_idle)

    def close(self) -> None:
        """Close those, and the others when they are given back."""
        self._pool.close()
        self._loops.close()

    def _forget_parent(self) -> None:
        """Have permits, in a forked child, in which no thread of the parent's waits."""
        self._permits = Permits(self._waiting)


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
