"""The backend that stands in for an alias in a test: in memory, with a journal and a clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ..backends.locmem import LocMemBackend, _Space
from ..conf import AliasConf
from ..core import flow, registry
from ..core.clock import now
from ..core.hold import Hold
from ..core.values import Claim, Grant, LockInfo, Refusal
from ..core.watchdog import PART, wants_renewal, watchdog

__all__ = ["ELSEWHERE", "RENEWED", "MemoryBackend"]

ELSEWHERE = "elsewhere-"
"""How the owner begins when it stands for another process; what it takes is not in the journal."""
RENEWED = "elsewhere-renewed-"
"""... and renews it for as long as the test goes on, whatever the clock."""


class MemoryBackend(LocMemBackend):
    """Locks in memory by the same contract, in a space that outlives the backend."""

    _spaces: ClassVar[dict[str, _Space]] = {}  # not those of the project's own LocMemBackends

    never_blocks = True

    def __init__(
        self,
        alias: str,
        conf: AliasConf,
        *,
        space: _Space,
        taken: list[str],
        longest_wait: float | None,
    ) -> None:
        options = {key: value for key, value in conf.options.items() if key in self.options}
        super().__init__(alias, replace(conf, location=None, options=options))
        self._space = space
        self._taken = taken
        self.longest_wait = longest_wait

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        with self._space.mutex:
            self._renew_others()
            several = self._space.several.get(claim.key)
            known = several is not None and several.members.of(claim.owner) is not None
            again = known or self._owned(claim) is not None
            answer = super().try_acquire(claim, limit)
            if isinstance(answer, Grant) and not (again or claim.owner.startswith(ELSEWHERE)):
                self._taken.append(claim.name)
            return answer

    def inspect(self, name: str) -> LockInfo | None:
        with self._space.mutex:
            self._renew_others()
            return super().inspect(name)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        with self._space.mutex:
            self._renew_others()
            return super().scan(prefix)

    def _renew_others(self) -> None:
        """Do what the watchdog of another process would have done by now."""
        for row in self._space.rows.values():
            if row.owner.startswith(RENEWED):
                row.expires = self.clock() + self.conf.ttl
        for several in self._space.several.values():
            for each in several.members.all:
                if each.owner.startswith(RENEWED):
                    several.members = several.members.renewed(
                        Claim("", "", each.owner, self.conf.ttl, each.note),
                        round(self.clock() * 1e6),
                    )

    def turn(self, seconds: float) -> None:
        """Let ``seconds`` pass at once for every lock; the watchdog then does what is due.

        It is the locks that grow older. So the clock itself, by which other aliases, waiters and
        the watchdog's thread go, stays as it is, and nothing has to be turned back.
        """
        _finish_renewals(self)
        with self._space.mutex:
            for row in self._space.rows.values():
                row.acquired -= seconds
                row.expires -= seconds
            for several in self._space.several.values():
                several.members = several.members.aged(round(seconds * 1e6))
            holds = list(registry.every(self))
            for hold in holds:
                hold.acquired -= seconds
                hold.deadline -= seconds
        for hold in holds:
            if not hold.is_lost():
                self._look_at(hold)

    def _look_at(self, hold: Hold) -> None:
        """Do what the watchdog would at its next look, which is too late now."""
        due = hold.deadline - self.clock() < hold.claim.ttl * (1 - 1 / PART)
        if not due or not wants_renewal(hold, self.clock()) or flow.run(hold.renew(None)):
            watchdog.watch(hold)

    def shortest_renewal(self) -> float | None:
        """Return how long the watchdog lets pass until the first renewal; None without any."""
        return min((h.claim.ttl / PART for h in registry.every(self) if h.renewing), default=None)


def _finish_renewals(backend: MemoryBackend) -> None:
    """Wait for the renewals under way, which counted from the time before."""
    end = now() + 1.0
    while any(hold.in_flight for hold in registry.every(backend)) and now() < end:
        time.sleep(0.001)
