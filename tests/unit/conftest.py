"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_distlock.signals import lock_lost

from .stage import Stage
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


@pytest.fixture
def stage(clock: VirtualClock) -> Iterator[Stage]:
    with opened(clock=clock) as backend:
        yield Stage(clock, backend)


@pytest.fixture
def lost() -> Iterator[list[dict[str, Any]]]:
    """What `lock_lost` was sent with."""
    facts: list[dict[str, Any]] = []

    def receive(**given: Any) -> None:
        facts.append(given)

    lock_lost.connect(receive)
    yield facts
    lock_lost.disconnect(receive)
