"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .tools import UnitBackend, VirtualClock, opened


@pytest.fixture
def backend() -> Iterator[UnitBackend]:
    """A store in memory of the test's own, under an alias of its own."""
    with opened() as backend:
        yield backend


@pytest.fixture
def clock() -> VirtualClock:
    """A clock that only the test moves."""
    return VirtualClock()
