"""What a measurement is told: the store, the adapters, how long; and what it returns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .adapter import Adapter, Kind
from .stores import Store

__all__ = ["GROWTH_LEASES", "Bench", "Row", "Subject"]

T = TypeVar("T")

GROWTH_LEASES = (1, 1000, 10_000, 50_000)

Row = dict[str, Any]
"""One line of a result: measure, store, adapter, kind, and figures by their names."""


class Subject(Protocol):
    """What a line of a result is about."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One store under measurement."""

    store: Store
    adapters: list[Adapter]
    rounds: int = 11
    warm_up: int = 200  # cycles of each adapter before the first round
    slice: float = 0.12  # seconds of one adapter in one round of cycles
    handoff: float = 4.0  # seconds of one adapter at one number of waiters, all rounds together
    handoff_rounds: int = 2
    waiters: tuple[int, ...] = (2, 8, 32)
    fairness: float = 10.0  # seconds
    several: float = 4.0  # seconds
    limits: tuple[int, ...] = (1, 4, 16)
    held: int = 10_000  # leases, for the memory of one
    attempts: int = 1000  # that fail
    renewed: int = 50_000  # leases that the watchdog renews
    renewing: float = 35.0  # seconds
    ttl: float = 30.0
    growth_waiters: tuple[int, ...] = (2, 8, 32, 128, 256)
    growth_keys: tuple[int, ...] = (1, 1000, 100_000)
    growth_leases: tuple[int, ...] = GROWTH_LEASES
    growth_renewing: float = 35.0  # seconds
    known: dict[object, dict[str, Any]] = field(default_factory=dict)
    """What two measures ask for, by what was asked: it is measured for the first of them."""

    @property
    def waiting(self) -> list[Adapter]:
        """The adapters that wait for a lock that is held."""
        return [adapter for adapter in self.adapters if adapter.waits]

    @property
    def ours(self) -> list[Adapter]:
        """Our own adapter of the alias ``default``, if it is among those to be measured."""
        mine = self.store.backend
        ours = [each for each in self.adapters if each.kind == "ours" and each.exclusive]
        return [each for each in ours if each.backend == mine]

    def leases(self, wanted: int) -> int:
        """Return how many leases to take where ``wanted`` are more than the store is good for."""
        return min(wanted, self.store.most_leases)

    def row(self, measure: str, subject: Subject, **figures: Any) -> Row:
        """Return a line of the result."""
        who = {"store": self.store.name, "adapter": subject.name, "kind": subject.kind}
        return {"measure": measure, **who, **figures}

    def rotated(self, subjects: list[T], rounds: int) -> Iterator[list[T]]:
        """Yield the subjects once a round, each round beginning with another one."""
        for number in range(rounds if subjects else 0):
            first = number % len(subjects)
            yield subjects[first:] + subjects[:first]

    def say(self, text: str) -> None:
        """Tell whoever waits what is being done."""
        print(f"    {self.store.name}: {text}", file=sys.stderr, flush=True)
