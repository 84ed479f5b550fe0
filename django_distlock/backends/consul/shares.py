"""Locks that several hold at once: a key for each holder, and a guard that each grant writes.

A grant is decided by what was read, and made if the guard is as it was read: then no other was
granted in between. A release does not write the guard, as a grant stays right with fewer holders.
"""

from __future__ import annotations

from typing import Final

from ...core.clock import Clock
from ...core.durations import in_microseconds
from ...core.members import Member, Members
from ...core.values import Claim, Refusal
from .api import Op, op
from .holds import Hold, Plan
from .records import Liveness, Paths, Share, State

__all__ = ["Shares"]

FEW: Final = 16
"""Holders of whom a release reads whether it was the last."""
NAMES: Final = 1_000
"""Names of which it is remembered who holds them."""


class Shares:
    """Who holds the locks of one backend together, as it was seen last."""

    def __init__(self, liveness: Liveness, clock: Clock) -> None:
        self.liveness = liveness
        self.clock = clock
        self.forget_parent()

    def forget_parent(self) -> None:
        """Begin without what the parent has seen, in a forked child."""
        # By the claim's key: the guard's index, and the holders; None where others were faster.
        self._seen: dict[str, tuple[int, Members] | None] = {}

    # -- what was read -----------------------------------------------------------------------------

    def left(self, key: str, share: Share) -> float:
        """Return the seconds that one of several holders has left by what was seen of it."""
        record = share.record
        looks = (record.beat, record.since)
        return record.ttl - self.liveness.age((key[:40], record.owner), looks)

    def living(self, key: str, state: State) -> tuple[Members, list[Share]]:
        """Return who holds a lock together, and the shares of those who are dead."""
        now = in_microseconds(self.clock())
        members, dead = [], []
        for share in state.shares:
            left = self.left(key, share) if share.pair.session else 0.0
            if left <= 0:
                dead.append(share)
                continue
            record, ends = share.record, now + in_microseconds(left)
            since = record.since * 1000
            members.append(Member(record.owner, share.token, since, ends, record.slot, record.note))
        return Members(state.limit, all=tuple(members)), dead

    def plan(self, claim: Claim, paths: Paths, state: State) -> Plan | Refusal:
        """Return what takes the lock as far as it is several's, or why it has to wait."""
        members, dead = self.living(claim.key, state)
        now, guard = in_microseconds(self.clock()), state.guard
        ops = [op("delete-cas", each.pair.key, index=each.pair.index) for each in dead]
        if claim.is_exclusive:
            if (refusal := members.refusal(claim, now)) is not None:
                return refusal
            if guard is None:
                return Plan([op("check-not-exists", paths.guard), *ops])
            check = op("check-index", paths.guard, index=guard.index)
            return Plan([check, op("delete", paths.guard), *ops])
        joined = members.joined(claim, now, 0)
        if isinstance(joined, Refusal):
            return joined
        return Plan(ops, joined, 0 if guard is None else guard.index)

    # -- what is known without reading -------------------------------------------------------------

    def attempt(self, claim: Claim, paths: Paths, is_free: Op) -> Plan | None:
        """Return what takes a share if nothing has changed; None where that has to be read."""
        seen = self._seen.get(claim.key, (0, Members()))
        if seen is None:
            return None
        guard, members = seen
        joined = members.joined(claim, in_microseconds(self.clock()), 0)
        if isinstance(joined, Refusal):
            return None
        return Plan([is_free, op("check-not-exists", paths.mark)], joined, guard)

    def granted(self, key: str, index: int, members: Members) -> None:
        """Note a grant, which has written the guard."""
        if len(self._seen) >= NAMES:
            self._seen.clear()
        self._seen[key] = (index, members)

    def outrun(self, key: str) -> None:
        """Note that others changed what was known of a name."""
        self._seen[key] = None

    # -- giving back -------------------------------------------------------------------------------

    def last_ops(self, hold: Hold) -> list[Op]:
        """Return what removes the guard with the last holder, or shows whether it was the last."""
        paths, seen = hold.paths, self._seen.get(hold.paths.key)
        if seen is None:
            return [op("get-tree", paths.all)]
        guard, members = seen
        others = members.without(hold.record.owner).all
        if not others:
            return [op("delete-cas", paths.guard, index=guard)]
        return [op("get-tree", paths.all)] if len(others) < FEW else []

    def released(self, hold: Hold) -> None:
        """Note a release; with the last one that is known of, the guard was removed."""
        key, seen = hold.paths.key, self._seen.get(hold.paths.key)
        if seen is None:
            return
        others = seen[1].without(hold.record.owner)
        if others.all:
            self._seen[key] = seen[0], others
        else:
            self.forget(key)

    def forget(self, key: str) -> None:
        """Note that the last share of a name was given back."""
        self._seen.pop(key, None)
