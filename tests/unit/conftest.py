"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_distlock import locks
from django_distlock.metrics import Measurement, listen
from django_distlock.signals import lock_released
from django_distlock.testing.alias_overrides import is_overridden
from django_distlock.testing.memory import MemoryBackend

from .stage import Stage
from .tools import UnitBackend, VirtualClock, opened


@pytest.fixture(autouse=True)
def no_stand_ins_left() -> Iterator[None]:
    """Find an `override_locks` that did not end with its test."""
    yield
    for alias in locks:
        assert not is_overridden(alias)
    for backend in locks.all(initialized_only=True):
        assert not isinstance(backend, MemoryBackend)


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
    """What `lock_released` was sent with for leases that were lost."""
    facts: list[dict[str, Any]] = []

    def receive(**given: Any) -> None:
        if given["outcome"] == "lost":
            facts.append(given)

    lock_released.connect(receive)
    yield facts
    lock_released.disconnect(receive)


@pytest.fixture
def seen(backend: UnitBackend) -> Iterator[list[Measurement]]:
    """Every measurement of the test's own store."""
    found: list[Measurement] = []
    stop = listen(lambda m: found.append(m) if m.alias == backend.alias else None)
    yield found
    stop()
