"""What a measurement is told: the store, the adapters, how long; and what it returns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .adapter import Adapter
from .stores import Store

__all__ = ["Bench", "Row"]

Row = dict[str, Any]
"""One line of a result: measure, store, adapter, kind, and figures by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One store under measurement."""

    store: Store
    adapters: list[Adapter]
    rounds: int = 11
    slice: float = 0.12  # seconds of one adapter in one round of pairs
    handover: float = 4.0  # seconds of one adapter at one number of waiters, all rounds together
    handover_rounds: int = 2
    waiters: tuple[int, ...] = (2, 8, 32)
    fairness: float = 10.0  # seconds
    held: int = 10_000  # leases, for the memory of one
    attempts: int = 1000  # that fail
    renewed: int = 50_000  # leases that the watchdog renews
    renewing: float = 35.0  # seconds
    ttl: float = 30.0

    @property
    def waiting(self) -> list[Adapter]:
        """The adapters that wait for a lock that is held."""
        return [adapter for adapter in self.adapters if adapter.waits]

    @property
    def ours(self) -> Adapter:
        """Our own adapter."""
        return next(adapter for adapter in self.adapters if adapter.kind == "ours")

    def row(self, measure: str, adapter: Adapter, **figures: Any) -> Row:
        """Return a line of the result."""
        who = {"store": self.store.name, "adapter": adapter.name, "kind": adapter.kind}
        return {"measure": measure, **who, **figures}

    def rotated(self, adapters: list[Adapter], rounds: int) -> Iterator[list[Adapter]]:
        """Yield the adapters once a round, each round beginning with another one."""
        for number in range(rounds):
            first = number % len(adapters)
            yield adapters[first:] + adapters[:first]

    def say(self, text: str) -> None:
        """Tell whoever waits what is being done."""
        print(f"    {self.store.name}: {text}", file=sys.stderr, flush=True)
