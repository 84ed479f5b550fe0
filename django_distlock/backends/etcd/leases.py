"""Leases of etcd, each used by one claim at a time and kept for the next.

A lease costs a write to the disks of a majority, and its refreshing costs none. So a lease is not
revoked when its lock is released but lent to the next claim of this process. It never carries two
locks at once: what keeps one lock alive must not keep another one, whose holder has crashed.

A lease is made for longer than the ttl: by a quarter, at most five seconds. For so long it can be
lent without asking the server, as it still has the whole ttl in it then.

A lease is lent again only if every request that named it was answered. Else one may still be on its
way, and would hang the key of an old claim on the lease of a new one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

from ...core.threads import Mutex
from . import protocol
from .client import Operation
from .errors import NoSuchLeaseError

__all__ = ["LeasePool", "Lent", "lifetime"]

MARGIN, MOST = 0.25, 5.0
DRIFT = 0.01  # of a lease: clocks run at different speeds


def lifetime(ttl: float) -> int:
    """Return the whole seconds for which a lease is made that a lock of ``ttl`` hangs on."""
    return math.ceil(ttl / (1 - DRIFT) + min(ttl * MARGIN, MOST))


@dataclass(slots=True, eq=False)
class Lent:
    """A lease of etcd in the hands of one claim."""

    id: str
    asked: int
    """The ttl that was asked for; the server raises short ones."""
    until: float
    """When it ends by the local clock, at the earliest."""
    term: str | None = None
    """The leader's term in which it was last refreshed; None: all members agreed to it."""
    ours: bool = True
    """Whether this process asked for it."""

    def refreshed(self, sent: float, ttl: int, term: str | None) -> None:
        """Note that the server began ``ttl`` again after ``sent``."""
        self.until = max(self.until, sent + ttl * (1 - DRIFT))
        self.term = term


class LeasePool:
    """The leases of this process that no claim uses, and how short the server makes them."""

    def __init__(self) -> None:
        self._idle: dict[int, list[Lent]] = defaultdict(list)
        self._mutex = Mutex()
        self.least = 2
        """The shortest ttl that the server gives, as far as is known; 2 s by etcd's defaults."""

    def granted(self, asked: int, given: int) -> None:
        """Note what the server gave."""
        if given > asked or given < self.least:
            self.least = given

    def lend(self, asked: int, now: float) -> Lent | None:
        """Return the lease that was used last, or None."""
        with self._mutex:
            idle = self._idle[asked]
            # The one that ends last lies on top: below one that has ended all have.
            if idle and idle[-1].until > now:
                return idle.pop()
            del self._idle[asked]
            return None

    def give_back(self, lease: Lent, now: float) -> None:
        """Keep a lease of ours for the next claim."""
        if not lease.ours or lease.until <= now:
            return
        with self._mutex:
            idle = self._idle[lease.asked]
            idle.append(lease)
            if len(idle) > 1 and idle[0].until <= now:
                idle[:] = [each for each in idle if each.until > now]

    def end(self) -> Operation[None]:
        """Revoke them all; one that the server is not told of ends by itself."""
        with self._mutex:
            idle = [lease for leases in self._idle.values() for lease in leases]
            self._idle.clear()
        for lease in idle:
            with suppress(NoSuchLeaseError):
                yield protocol.revoke(lease.id)

    def __len__(self) -> int:
        with self._mutex:
            return sum(map(len, self._idle.values()))
