"""A server for each test, and clients that are closed at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from django_distlock.http import Answer, Endpoint, Http, Request
from tests.http.server import HTTPServer, serving
from tests.http.tools import Ask, Open


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """Serve for one test."""
    with serving() as server:
        yield server


class _Loop:
    """An event loop that goes on between the requests of a test."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def ask(self, http: Http, request: Request, limit: float) -> Answer:
        """Ask on the loop."""
        return self.runner.run(http.aask(request, limit))


@pytest.fixture(params=["thread", "loop"])
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Ask from a thread, and from an event loop."""
    if request.param == "thread":
        yield Http.ask
        return
    loop = _Loop()
    with loop.runner:
        yield loop.ask


@pytest.fixture
def opened() -> Iterator[Open]:
    """Give a function that makes an Http; all are closed at the end."""
    made: list[Http] = []

    def make(*endpoints: Endpoint, **more: Any) -> Http:
        made.append(Http(endpoints, **more))
        return made[-1]

    yield make
    for http in made:
        http.close()
