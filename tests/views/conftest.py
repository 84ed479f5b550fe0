"""Fixtures of the tests of views."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections

from tests.backends.tools import STORES, Cell
from tests.unit.tools import UnitBackend, opened
from tests.views.additions import Site
from tests.views.pieces import Streams


@pytest.fixture
def backend() -> Iterator[UnitBackend]:
    """A store in memory of the test's own, under an alias of its own."""
    with opened() as backend:
        yield backend


@pytest.fixture
def streams(backend: UnitBackend) -> Streams:
    """Views that send their response in pieces, under that store."""
    return Streams(backend)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Each database of this run that is both an alias of DATABASES and of DISTLOCKS."""
    return str(request.param)


@pytest.fixture
def cell(store: str, name: str) -> Cell:
    """A number in the database, for a lock to guard."""
    return Cell.new(store, name)


@pytest.fixture
def views(store: str, cell: Cell, name: str) -> Site:
    """Views that add one to that number."""
    return Site(store, cell, name)


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    """Close the main thread's connections, so that each test begins with none."""
    connections.close_all()
    yield
    for connection in connections.all(initialized_only=True):
        assert not connection.in_atomic_block
    connections.close_all()
