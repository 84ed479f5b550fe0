"""Streaming responses hold the lock until their last piece, or until they are closed."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator

import pytest
from django.http import FileResponse, HttpRequest, StreamingHttpResponse
from django.middleware.gzip import GZipMiddleware
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from django_distlock import Lease, LeaseLostError, LockNotHeldError, lock
from django_distlock.testing import expire_lease
from django_distlock.views import locked_view
from tests.unit.tools import Down, UnitBackend, eventually, in_thread
from tests.views.pieces import ALL, PIECES, Streams
from tests.views.site import page


def test_until_the_last_piece(streams: Streams) -> None:
    with page(streams.view()) as client:
        response = client.get("/1/")
        assert streams.backend.holds("a")
        assert list(response) == PIECES
        # Not only when it is closed: it is free as soon as all was sent.
        assert streams.events == ALL
    assert not streams.backend.holds("a")
    assert streams.backend.count("release") == 1


def test_free_at_the_last_piece_before_the_close(streams: Streams) -> None:
    response = streams.respond()
    assert list(response) == PIECES
    assert not streams.backend.holds("a")
    response.close()
    assert streams.backend.count("release") == 1


@pytest.mark.parametrize("begun", [False, True])
def test_until_the_close(streams: Streams, begun: bool) -> None:
    response = streams.respond()
    if begun:
        assert next(iter(response)) == b"one"
    assert streams.backend.holds("a")
    response.close()
    assert not streams.backend.holds("a")
    assert streams.events == (["one held", "end held"] if begun else [])
    response.close()
    assert streams.backend.count("release") == 1


def test_closed_by_another_thread(streams: Streams) -> None:
    response = streams.respond()
    in_thread(lambda: next(iter(response)))
    in_thread(response.close)
    assert not streams.backend.holds("a")


def test_a_piece_that_fails_frees_it(backend: UnitBackend) -> None:
    def parts() -> Iterator[bytes]:
        yield b"one"
        raise LookupError

    def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(parts())

    response = locked_view("a", using=backend.alias)(view)(RequestFactory().get("/"))
    with pytest.raises(LookupError):
        list(response)
    assert not backend.holds("a")


def test_a_list_and_a_file(backend: UnitBackend) -> None:
    file = io.BytesIO(b"content")

    def many(request: HttpRequest, pk: int) -> StreamingHttpResponse:
        return StreamingHttpResponse(["one", "two"])

    def one(request: HttpRequest, pk: int) -> FileResponse:
        return FileResponse(file, filename="export.csv")

    kinds = ((many, b"onetwo", "text/html; charset=utf-8"), (one, b"content", "text/csv"))
    for view, content, kind in kinds:
        with page(locked_view("a", using=backend.alias)(view)) as client:
            response = client.get("/1/")
            assert response["Content-Type"] == kind
            assert backend.holds("a")
            assert response.getvalue() == content
            assert not backend.holds("a")
    assert file.closed


def test_read_on_after_its_end(streams: Streams) -> None:
    """As a server does that looks whether there is more; the lock is somebody else's by then."""
    pieces = iter(streams.respond())
    assert list(pieces) == PIECES
    with lock("a", using=streams.backend.alias):
        assert list(pieces) == []
        assert streams.backend.count("release") == 1


def test_through_middleware_that_wraps_the_pieces(streams: Streams) -> None:
    middleware = [f"{GZipMiddleware.__module__}.GZipMiddleware"]
    with page(streams.view(), MIDDLEWARE=middleware) as client:
        response = client.get("/1/", headers={"Accept-Encoding": "gzip"})
        assert response["Content-Encoding"] == "gzip"
        assert streams.backend.holds("a")
        assert response.getvalue()
    assert streams.events == ALL
    assert not streams.backend.holds("a")


def test_of_a_class(streams: Streams) -> None:
    class Export(View):
        def get(self, request: HttpRequest, pk: int) -> StreamingHttpResponse:
            return StreamingHttpResponse(streams.parts())

    decorate = method_decorator(locked_view("a", using=streams.backend.alias), name="dispatch")
    with page(decorate(Export).as_view()) as client:
        assert client.get("/1/").getvalue() == b"onetwothree"
    assert streams.events == ALL
    assert not streams.backend.holds("a")


def test_a_response_that_nobody_closes_is_left_to_the_ttl(streams: Streams) -> None:
    response = streams.respond(ttl=0.3)
    del response
    gc.collect()
    assert eventually(lambda: not streams.backend.holds("a"))


# -- lost ----------------------------------------------------------------------------------------


def test_a_lost_lease_cuts_the_stream_off(streams: Streams) -> None:
    response = streams.respond()
    pieces = iter(response)
    assert next(pieces) == b"one"
    expire_lease("a", using=streams.backend.alias)
    with pytest.raises(LeaseLostError):
        next(pieces)
    response.close()
    assert streams.events == ["one held", "end free"]


def test_a_stream_that_was_cut_off_stays_so(streams: Streams) -> None:
    pieces = iter(streams.respond())
    assert next(pieces) == b"one"
    expire_lease("a", using=streams.backend.alias)
    for _ in range(2):
        with pytest.raises(LockNotHeldError):  # at first a LeaseLostError
            next(pieces)


def test_a_loss_that_the_release_finds_cuts_it_off_at_the_end(streams: Streams) -> None:
    response = streams.respond()
    pieces = iter(response)
    assert [next(pieces) for _ in PIECES] == PIECES
    streams.backend.drop("a")
    with pytest.raises(LeaseLostError):
        next(pieces)


def test_a_view_may_not_care(streams: Streams, caplog: pytest.LogCaptureFixture) -> None:
    response = streams.respond(on_lost="ignore")
    pieces = iter(response)
    assert next(pieces) == b"one"
    expire_lease("a", using=streams.backend.alias)
    assert list(pieces) == PIECES[1:]
    assert "After a streaming response: The lease is lost" in caplog.text


def test_a_store_that_fails_at_the_end_cuts_nothing_off(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.backend.before["release"] += [Down()]
    assert streams.respond().getvalue() == b"onetwothree"
    assert "After a streaming response: Lock store error while releasing" in caplog.text


def test_a_store_that_fails_at_the_close_is_told(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    response = streams.respond()
    streams.backend.before["release"] += [Down()]
    response.close()
    assert "After a streaming response: Lock store error while releasing" in caplog.text


def test_who_sends_it_is_the_holder(streams: Streams) -> None:
    """The thread of the view may end: for such a holder nothing would be renewed."""
    response = in_thread(lambda: streams.respond(ttl=2.4))
    pieces = iter(response)
    assert next(pieces) == b"one"
    renewed = len(streams.backend.batches)
    assert eventually(lambda: len(streams.backend.batches) > renewed + 3, 15)
    assert [*pieces] == PIECES[1:]


def test_a_stream_may_take_its_own_lock_again(backend: UnitBackend) -> None:
    def parts() -> Iterator[str]:
        with lock("a", using=backend.alias, reentrant=True, wait=0) as lease:
            yield str(lease.fencing_token)

    def view(request: HttpRequest) -> StreamingHttpResponse:
        lease: Lease = request.lease  # type: ignore[attr-defined]
        response = StreamingHttpResponse(parts())
        response["Token"] = str(lease.fencing_token)
        return response

    locked = locked_view("a", using=backend.alias)(view)
    response = in_thread(lambda: locked(RequestFactory().get("/")))
    assert response.getvalue().decode() == response["Token"]
    assert not backend.holds("a")


def test_a_lock_handed_over_by_the_view_is_not_the_streams(backend: UnitBackend) -> None:
    handles = []

    def view(request: HttpRequest) -> StreamingHttpResponse:
        handles.append(request.lease.detach())  # type: ignore[attr-defined]
        return StreamingHttpResponse(iter(PIECES))

    response = locked_view("a", using=backend.alias)(view)(RequestFactory().get("/"))
    assert response.getvalue() == b"onetwothree"
    assert backend.holds("a")
    Lease.attach(handles[0]).release()
