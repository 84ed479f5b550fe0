"""A watchdog and a store on one clock, for tests that tell both the time."""

from __future__ import annotations

from typing import Any

from django_distlock.core.hold import Hold

from .tools import HandWatchdog, UnitBackend, VirtualClock, drain, make_hold

__all__ = ["TTL", "Stage"]

TTL = 30.0


class Stage:
    """A watchdog and a store on one clock."""

    def __init__(self, clock: VirtualClock, backend: UnitBackend) -> None:
        self.clock = clock
        self.backend = backend
        self.dog = HandWatchdog(clock)

    def take(self, name: str = "a", **options: Any) -> Hold:
        """Take a lock and have it watched."""
        hold = make_hold(self.backend, name, **options)
        self.dog.watch(hold)
        return hold

    def step(self) -> None:
        """Go on to the next time when something is due, and do it to the end."""
        due = self.dog.next_due
        assert due is not None
        self.clock.now = max(self.clock.now, due)
        self.dog.look()
        drain(self.backend)
