"""A store of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.tools import UnitBackend, opened


@pytest.fixture
def backend() -> Iterator[UnitBackend]:
    """A store in memory that fails on demand, under an alias of its own."""
    with opened() as backend:
        yield backend
