"""Asking one of several equal servers, from threads and from event loops."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from ..core.fork import after_fork
from ..core.loops import PerLoop
from ..core.threads import Places
from .awires import AsyncWire
from .messages import Answer, Endpoint, HttpError, Request
from .pools import LoopPool, Pool
from .routes import Ring, Route
from .streams import AsyncStream, Stream
from .wires import Wire

__all__ = ["Full", "Http"]


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
        self._ring = Ring(endpoints)
        self._headers = tuple((headers or {}).items())
        self._tls = tls
        self._waiting = waiting
        self._places = Places(waiting)
        after_fork(self._forget_parent)
        self._pool = Pool(lambda to: Wire(to, self._headers, self._context(to)))
        self._loops = PerLoop(
            lambda: LoopPool(lambda to: AsyncWire(to, self._headers, self._context(to)))
        )

    # -- from threads ------------------------------------------------------------------------------

    def ask(self, request: Request, limit: float) -> Answer:
        """Send a request and return the answer, of whatever status.

        The servers are asked one after the other, within ``limit`` seconds in all, until one
        answers. Raises HttpError when none did, and Full when too many are waiting.
        """
        with self._place(request):
            route = Route(self._ring, request, limit)
            while (to := route.next()) is not None:
                wire = self._pool.lend(to[0])
                try:
                    answer = wire.ask(request, to[1])
                except HttpError as error:
                    route.failed(error)
                    continue
                self._pool.give_back(wire)
                if route.took(answer):
                    return answer
            return route.ending()

    def open(self, request: Request, limit: float) -> Stream:
        """Send a request whose answer is a stream of lines; its head may take ``limit`` seconds."""
        done = self._take_place()
        try:
            route = Route(self._ring, request, limit)
            while (to := route.next()) is not None:
                wire = self._pool.make(to[0])
                try:
                    head = wire.open(request, to[1])
                except HttpError as error:
                    route.failed(error)
                    continue
                if route.took(head):
                    return Stream(head, wire, done)
                wire.drop()
            raise HttpError(f"status {route.ending().status}")
        except BaseException:
            done()
            raise

    # -- from event loops --------------------------------------------------------------------------

    async def aask(self, request: Request, limit: float) -> Answer:
        """Ask as `ask`."""
        with self._place(request):
            pool = await self._loops.mine()
            route = Route(self._ring, request, limit)
            async with pool.room(request, limit):
                while (to := route.next()) is not None:
                    wire = pool.lend(to[0])
                    try:
                        answer = await wire.ask(request, to[1])
                    except HttpError as error:
                        route.failed(error)
                        continue
                    await pool.give_back(wire)
                    if route.took(answer):
                        return answer
                return route.ending()

    async def aopen(self, request: Request, limit: float) -> AsyncStream:
        """Open as `open`."""
        done = self._take_place()
        try:
            pool = await self._loops.mine()
            route = Route(self._ring, request, limit)
            while (to := route.next()) is not None:
                wire = pool.make(to[0])
                try:
                    head = await wire.open(request, to[1])
                except HttpError as error:
                    route.failed(error)
                    continue
                if route.took(head):
                    return AsyncStream(head, wire, done)
                wire.drop()
            raise HttpError(f"status {route.ending().status}")
        except BaseException:
            done()
            raise

    # -- both --------------------------------------------------------------------------------------

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if not endpoint.tls:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _take_place(self) -> Callable[[], None]:
        """Take one of the places of requests that wait; return how to give it back."""
        places = self._places
        place = places.take()
        if place is None:
            raise Full(f"{self._waiting} requests wait already", sent=False)
        return partial(places.release, place)

    @contextmanager
    def _place(self, request: Request) -> Iterator[None]:
        if request.wait <= 0:
            yield
            return
        done = self._take_place()
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
        """Have places, in a forked child, in which no thread of the parent's waits."""
        self._places = Places(self._waiting)
