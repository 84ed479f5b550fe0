"""Views that send their response in pieces, and note under what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.test import RequestFactory

from django_distlock.views import locked_view
from tests.unit.tools import UnitBackend

PIECES = [b"one", b"two", b"three"]
ALL = ["one held", "two held", "three held", "end held"]
"""What is noted of a stream that was sent to its end."""


class Streams:
    """Views that send three pieces; what happens is written down."""

    def __init__(self, backend: UnitBackend) -> None:
        self.backend = backend
        self.events: list[str] = []

    def note(self, what: str) -> None:
        self.events.append(f"{what} {'held' if self.backend.holds('a') else 'free'}")

    def parts(self) -> Iterator[bytes]:
        try:
            for piece in PIECES:
                self.note(piece.decode())
                yield piece
        finally:
            self.note("end")

    async def aparts(self) -> AsyncIterator[bytes]:
        try:
            for piece in PIECES:
                self.note(piece.decode())
                yield piece
                await asyncio.sleep(0)
        finally:
            self.note("end")

    def view(self, **options: Any) -> Any:
        def view(request: HttpRequest, pk: int = 0) -> StreamingHttpResponse:
            return StreamingHttpResponse(self.parts())

        return locked_view("a", using=self.backend.alias, **options)(view)

    def aview(self, **options: Any) -> Any:
        async def view(request: HttpRequest, pk: int = 0) -> StreamingHttpResponse:
            return StreamingHttpResponse(self.aparts())

        return locked_view("a", using=self.backend.alias, **options)(view)

    def respond(self, **options: Any) -> Any:
        """Return the response of the view, of which nothing was sent yet."""
        return self.view(**options)(RequestFactory().get("/"))
