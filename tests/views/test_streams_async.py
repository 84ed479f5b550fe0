"""Asynchronous streaming responses, on Django's own ASGI handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, StreamingHttpResponse
from django.test import Client, RequestFactory

from django_distlock import LeaseLostError, LockNotHeldError
from django_distlock.testing import expire_lease
from django_distlock.views import locked_view
from tests.unit.tools import Down, eventually
from tests.views.pieces import ALL, PIECES, Streams
from tests.views.site import page


class Server:
    """Django's ASGI handler, and a client whose connection the test has in its hands."""

    def __init__(self) -> None:
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": "/1/",
            "query_string": b"", "headers": [(b"host", b"testserver")],
        }  # fmt: skip
        # Any, because it is not typed.
        self.application: Any = cast("Any", ApplicationCommunicator)(get_asgi_application(), scope)

    async def ask(self) -> int:
        """Send the request and return the status of the response."""
        await self.application.send_input({"type": "http.request", "body": b""})
        start = await self.application.receive_output(10)
        return int(start["status"])

    async def piece(self) -> bytes:
        """Return the next piece."""
        return bytes((await self.application.receive_output(10)).get("body", b""))

    async def go_away(self) -> None:
        """Close the client's end and wait until the server has noticed."""
        await self.application.send_input({"type": "http.disconnect"})
        await self.application.wait(10)


def on_a_server(view: Any, visit: Callable[[Server], Any]) -> None:
    async def main() -> None:
        await visit(Server())

    with page(view):
        asyncio.run(main())


def test_asynchronous_until_the_last_piece(streams: Streams) -> None:
    async def visit(server: Server) -> None:
        assert await server.ask() == 200
        assert streams.backend.holds("a")
        assert [await server.piece() for _ in PIECES] == PIECES
        assert await server.piece() == b""
        assert not streams.backend.holds("a")
        await server.application.wait(10)

    on_a_server(streams.aview(), visit)
    assert streams.events == ALL
    assert streams.backend.count("release") == 1


def test_the_client_goes_away_in_an_asynchronous_stream(streams: Streams) -> None:
    stands = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            stands.set()
            await asyncio.sleep(60)
        finally:
            streams.note("end")

    async def view(request: HttpRequest, pk: int) -> StreamingHttpResponse:
        return StreamingHttpResponse(parts())

    async def visit(server: Server) -> None:
        assert await server.ask() == 200
        assert await server.piece() == b"one"
        await stands.wait()
        assert streams.backend.holds("a")
        await server.go_away()
        assert not streams.backend.holds("a")

    on_a_server(locked_view("a", using=streams.backend.alias)(view), visit)
    assert streams.events == ["end held"]


def test_an_asynchronous_stream_is_closed_between_two_pieces(streams: Streams) -> None:
    """Nobody closes the generator but us, and it ends under the lock."""

    async def main() -> None:
        response = await streams.aview()(RequestFactory().get("/"))
        pieces = aiter(response.streaming_content)
        assert await anext(pieces) == b"one"
        await asyncio.to_thread(response.close)
        assert not streams.backend.holds("a")

    asyncio.run(main())
    assert streams.events == ["one held", "end held"]


def test_closed_on_the_loops_own_thread(streams: Streams) -> None:
    """As the test client does: the store is not waited for there."""

    async def main() -> None:
        response = await streams.aview()(RequestFactory().get("/"))
        response.close()
        assert eventually(lambda: not streams.backend.holds("a"))

    asyncio.run(main())


def test_the_client_goes_away_while_the_view_runs(streams: Streams) -> None:
    begun = asyncio.Event()

    async def view(request: HttpRequest, pk: int) -> StreamingHttpResponse:
        begun.set()
        await asyncio.sleep(60)
        return StreamingHttpResponse(streams.aparts())

    async def visit(server: Server) -> None:
        await server.application.send_input({"type": "http.request", "body": b""})
        await begun.wait()
        assert streams.backend.holds("a")
        await server.go_away()
        assert not streams.backend.holds("a")

    on_a_server(locked_view("a", using=streams.backend.alias)(view), visit)
    assert streams.events == []


def test_a_lost_lease_cuts_an_asynchronous_stream_off(streams: Streams) -> None:
    requests: list[HttpRequest] = []

    async def visit(server: Server) -> None:
        assert await server.ask() == 200
        assert await server.piece() == b"one"
        expire_lease("a", using=streams.backend.alias)
        with pytest.raises(LeaseLostError):
            await server.application.wait(10)

    async def parts() -> AsyncIterator[bytes]:
        for piece in PIECES:
            yield piece
            await asyncio.sleep(0.1)

    async def view(request: HttpRequest, pk: int) -> StreamingHttpResponse:
        requests.append(request)
        return StreamingHttpResponse(parts())

    on_a_server(locked_view("a", using=streams.backend.alias)(view), visit)
    for request in requests:  # Django does so only when there was no error
        request.close()


def test_an_asynchronous_stream_below_synchronous_middleware(streams: Streams) -> None:
    """The view's task ends before the first piece: who sends it is the holder from then on."""

    async def parts() -> AsyncIterator[bytes]:
        for piece in PIECES:
            yield piece
            await asyncio.sleep(0.9)

    async def view(request: HttpRequest, pk: int) -> StreamingHttpResponse:
        return StreamingHttpResponse(parts())

    def middleware(get_response: Any) -> Any:
        def call(request: HttpRequest) -> Any:
            return get_response(request)

        return call

    globals()["middleware"] = middleware

    async def visit(server: Server) -> None:
        assert await server.ask() == 200
        assert [await server.piece() for _ in PIECES] == PIECES
        assert await server.piece() == b""
        await server.application.wait(10)

    locked = locked_view("a", using=streams.backend.alias, ttl=2.4)(view)
    with page(locked, MIDDLEWARE=[f"{__name__}.middleware"]):
        asyncio.run(visit(Server()))
    assert not streams.backend.holds("a")


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_a_synchronous_stream_on_an_asynchronous_server(streams: Streams) -> None:
    async def visit(server: Server) -> None:
        assert await server.ask() == 200
        assert [await server.piece() for _ in PIECES] == PIECES
        await server.application.wait(10)

    on_a_server(streams.view(), visit)
    assert streams.events == ALL
    assert not streams.backend.holds("a")


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_an_asynchronous_stream_on_a_synchronous_server(streams: Streams) -> None:
    with page(streams.aview()):
        response = Client().get("/1/")
        assert b"".join(response) == b"onetwothree"
    assert streams.events == ALL
    assert not streams.backend.holds("a")


class Pieces:
    """An asynchronous iterator that is no generator, and so cannot be closed."""

    def __init__(self) -> None:
        self._left = list(PIECES)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop(0)


async def respond(streams: Streams, parts: Any, **options: Any) -> StreamingHttpResponse:
    """Return a response of which nothing was sent yet."""

    async def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(parts)

    locked: Any = locked_view("a", using=streams.backend.alias, **options)(view)
    return cast("StreamingHttpResponse", await locked(RequestFactory().get("/")))


async def read(response: StreamingHttpResponse) -> list[bytes]:
    """Read a response to its end."""
    return [bytes(piece) async for piece in response.streaming_content]  # type: ignore[union-attr]


@pytest.mark.parametrize("begun", [False, True])
def test_an_iterator_that_cannot_be_closed(streams: Streams, begun: bool) -> None:
    async def main() -> None:
        response = await respond(streams, Pieces())
        if begun:
            assert await anext(aiter(response.streaming_content)) == b"one"  # type: ignore[arg-type]
        assert streams.backend.holds("a")
        await asyncio.to_thread(response.close)
        assert not streams.backend.holds("a")

    asyncio.run(main())


def test_an_asynchronous_stream_read_on_after_its_end(streams: Streams) -> None:
    async def main() -> None:
        response = await respond(streams, Pieces())
        assert await read(response) == PIECES
        assert await read(response) == []
        assert streams.backend.count("release") == 1

    asyncio.run(main())


def test_an_asynchronous_stream_that_was_cut_off_stays_so(streams: Streams) -> None:
    async def main() -> None:
        response = await respond(streams, Pieces())
        expire_lease("a", using=streams.backend.alias)
        for _ in range(2):
            with pytest.raises(LockNotHeldError):  # at first a LeaseLostError
                await read(response)

    asyncio.run(main())


def test_a_store_that_fails_at_the_end_of_an_asynchronous_stream(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.backend.before["release"] += [Down()]

    async def main() -> None:
        assert await read(await respond(streams, Pieces())) == PIECES

    asyncio.run(main())
    assert "After a streaming response: Lock store error while releasing" in caplog.text


def test_a_reader_that_is_dropped_in_the_middle_of_a_piece(streams: Streams) -> None:
    """As a server drops its coroutines when its loop ends: nobody will await anything any more."""

    class Endless(Pieces):
        async def __anext__(self) -> bytes:
            await asyncio.sleep(60)
            return b""

    async def main() -> None:
        response = await respond(streams, Endless())
        reading = vars(response)["_iterator"].__anext__()
        reading.send(None)
        assert streams.backend.holds("a")
        reading.close()
        assert eventually(lambda: not streams.backend.holds("a"))

    asyncio.run(main())
