"""Fixtures of the tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections

from tests.backends.tools import STORES


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Each database of this run that is both an alias of DATABASES and of DISTLOCKS."""
    return str(request.param)


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    """Close the main thread's connections, so that each test begins with none."""
    connections.close_all()
    yield
    connections.close_all()


@pytest.fixture
def prefix(name: str) -> str:
    """The beginning of names that nobody else uses."""
    return name[-8:]
