"""Holds of two locks under a watchdog, with answers that are lost, late, slow or repeated.

The store, the clock, the watchdog and its worker are all in the hands of hypothesis: nothing here
runs on a thread. While a renewal is under way the holder may release or renew, and an operator may
break the lock. What has to hold is said once, in the invariants.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import cast
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from django_distlock.core import watchdog
from django_distlock.core.flow import drift, run
from django_distlock.core.hold import UNANSWERED, Hold, State
from django_distlock.core.values import Claim, Grant
from django_distlock.core.worker import Worker
from django_distlock.exceptions import LockBackendError, LockNotHeldError

from .tools import Down, HandWatchdog, UnitBackend, VirtualClock, claim_of, opened

SHORT, LONG = 3.0, 30.0
NAMES = ["a", "b"]
FATES = ["done", "done", "done", "lost", "unsent", "twice", "late"]


class Store(UnitBackend):
    """A store whose next answer the machine decides."""

    fate = "done"
    slow = 0.0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.late: list[tuple[float, Callable[[], object]]] = []  # and when it was sent
        self.meanwhile: Callable[[], None] | None = None
        self.background: list[Claim] = []  # what the watchdog asked to be renewed

    def _happen(self, act: Callable[[], bool]) -> bool:
        fate, self.fate = self.fate, "done"
        slow, self.slow = self.slow, 0.0
        cast("VirtualClock", self.clock).advance(slow)
        if fate == "late":
            self.late.append((self.clock(), act))
        if fate in ("late", "unsent"):
            raise Down("no answer")
        answer = act()
        if fate == "twice":
            answer = act()
        cast("VirtualClock", self.clock).advance(slow)
        if fate == "lost":
            raise Down("no answer")
        return answer

    def renew(self, claim: Claim) -> bool:
        act = super().renew
        return self._happen(lambda: act(claim))

    def release(self, claim: Claim) -> bool:
        act = super().release
        return self._happen(lambda: act(claim))

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        self.background += claims
        meanwhile, self.meanwhile = self.meanwhile, None
        answers = super().renew_many(claims)
        if meanwhile:
            meanwhile()
        return answers


class ByHand:
    """A worker without a thread: the machine has it do one job after the other."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None], delay: float = 0.0) -> None:
        assert not delay
        self.jobs.append(job)


@dataclass(eq=False)
class Mine:
    """A hold, and what the machine knows of it."""

    hold: Hold
    told: list[Hold] = field(default_factory=list)
    forced: bool = False  # its lock was broken: it may be sure until its next renewal
    ending: bool = False  # its release was asked for: it relies on nothing any more


class Upkeep(RuleBasedStateMachine):
    """Leases that are taken, renewed, released, broken, dropped and forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.stack = ExitStack()
        self.store = cast("Store", self.stack.enter_context(opened(Store, clock=self.clock)))
        self.dog = HandWatchdog(self.clock)
        self.stack.enter_context(mock.patch("django_distlock.core.hold.watchdog", self.dog))
        self.worker = ByHand()
        watchdog._workers[self.store] = cast("Worker", self.worker)
        self.mine: list[Mine] = []
        self.owners = itertools.count()

    def teardown(self) -> None:
        """Let everything end: nothing is sure, nothing is watched, each loss was told once."""
        self.worker.jobs.clear()
        for _ in range(100):
            if self.dog.next_due is None:
                break
            self.clock.now = max(self.clock.now, self.dog.next_due)
            self.store.fate = "unsent"
            self._look()
            self.worker.jobs.clear()
        assert self.dog.next_due is None
        for each in self.mine:
            assert each.hold.state in (State.LOST, State.RELEASED)
            assert len(each.told) == (each.hold.state is State.LOST)
        self.mine.clear()
        del watchdog._workers[self.store]
        self.stack.close()

    # -- what is looked for ------------------------------------------------------------------------

    def _row(self, name: str) -> tuple[str, float]:
        """Return who holds a lock in the store and until when, without asking it."""
        row = self.store._space.rows.get(self.store.key(name))
        if row is None or row.expires <= self.clock():
            return "", 0.0
        return row.owner, row.expires

    def _active(self) -> list[Mine]:
        return [each for each in self.mine if each.hold.state is State.ACTIVE]

    def _one(self, data: st.DataObject) -> Mine:
        """Choose an active one: by its place, as hypothesis would keep the hold itself alive."""
        active = self._active()
        return active[data.draw(st.integers(0, len(active) - 1))]

    def _look(self) -> None:
        for each in self.dog.look():
            if self.clock() >= each.deadline:
                assert each.state is State.LOST, "its time was up and it was not told"

    def _release(self, each: Mine) -> None:
        each.ending = True
        with suppress(LockBackendError, LockNotHeldError):
            run(each.hold.release())

    # -- what may happen ---------------------------------------------------------------------------

    @initialize(ttl=st.sampled_from([SHORT, LONG]))
    def begin(self, ttl: float) -> None:
        """Hypothesis leaves out some of the rules each time, but never this one."""
        for name in NAMES:
            self._take(name, ttl, renewing=True, max_hold=None)

    @rule(
        name=st.sampled_from(NAMES),
        ttl=st.sampled_from([SHORT, LONG]),
        renewing=st.sampled_from([True, True, False]),
        max_hold=st.sampled_from([None, None, 2 * LONG]),
    )
    def take(self, name: str, ttl: float, renewing: bool, max_hold: float | None) -> None:
        self._take(name, ttl, renewing=renewing, max_hold=max_hold)

    def _take(self, name: str, ttl: float, *, renewing: bool, max_hold: float | None) -> None:
        claim = claim_of(self.store, name, owner=f"owner {next(self.owners)}", ttl=ttl)
        asked = self.clock()
        grant = self.store.try_acquire(claim, 1.0)
        if not isinstance(grant, Grant):
            return
        hold = Hold(
            self.store,
            claim,
            grant,
            deadline=asked + ttl - drift(ttl),
            acquired=asked,
            renewing=renewing,
            max_hold=max_hold,
        )
        each = Mine(hold)
        hold.tell_when_lost(each.told.append)
        self.mine.append(each)
        self.dog.watch(hold)

    @precondition(lambda self: self.dog.next_due is not None)
    @rule(late=st.sampled_from([0.0, 0.0, 0.0, 0.5, SHORT]))
    def the_watchdog_looks(self, late: float) -> None:
        """Look when something is due, or later: the machine was busy, or asleep."""
        due = self.dog.next_due
        assert due is not None
        self.clock.now = max(self.clock.now, due) + late
        self._look()

    @precondition(lambda self: self.worker.jobs or self.dog.next_due is not None)
    @rule(
        fate=st.sampled_from(FATES),
        slow=st.sampled_from([0.0, 0.0, 1.0, SHORT]),
        crossing=st.sampled_from(["", "", "release", "renew", "force"]),
        data=st.data(),
    )
    def the_worker_renews(self, fate: str, slow: float, crossing: str, data: st.DataObject) -> None:
        """Do one job; when the store has done it, something may come before its answer."""
        while not self.worker.jobs:
            if self.dog.next_due is None:
                return
            self.the_watchdog_looks(0.0)
        if crossing and self._active():
            each = self._one(data)
            crossed: dict[str, Callable[[], None]] = {
                "release": lambda: self._release(each),
                "renew": lambda: self._renew(each, data.draw(st.sampled_from([SHORT, LONG]))),
                "force": lambda: self.force(each.hold.claim.name),
            }
            self.store.meanwhile = crossed[crossing]
        relies = {
            each.hold.claim.owner
            for each in self.mine
            if each.hold.renewing and each.hold.state is State.ACTIVE
        }
        self.store.fate, self.store.slow = fate, slow
        self.worker.jobs.pop(0)()
        self.store.fate, self.store.slow, self.store.meanwhile = "done", 0.0, None
        asked = {claim.owner for claim in self.store.background}
        assert asked <= relies, "renewed for nobody"
        self.store.background.clear()

    def _renew(self, each: Mine, ttl: float) -> None:
        with suppress(LockBackendError):
            run(each.hold.renew(ttl))

    @precondition(lambda self: self._active())
    @rule(
        data=st.data(),
        ttl=st.sampled_from([SHORT, LONG]),
        fate=st.sampled_from(FATES),
        slow=st.sampled_from([0.0, 1.0]),
    )
    def renew(self, data: st.DataObject, ttl: float, fate: str, slow: float) -> None:
        each = self._one(data)
        if each.hold.is_lost():
            return  # as `Lease.renew` does
        self.store.fate, self.store.slow = fate, slow
        self._renew(each, ttl)

    @precondition(lambda self: self._active())
    @rule(data=st.data(), fate=st.sampled_from(FATES))
    def release(self, data: st.DataObject, fate: str) -> None:
        self.store.fate = fate
        self._release(self._one(data))
        self.store.fate = "done"

    @rule(name=st.sampled_from(NAMES))
    def force(self, name: str) -> None:
        """Break a lock, as an operator does, or a flush of the store."""
        owner, _ = self._row(name)
        for each in self.mine:
            each.forced = each.forced or each.hold.claim.owner == owner
        self.store.drop(name)

    @precondition(lambda self: self._active())
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """Forget a lease without a release; nobody may renew it from now on."""
        self.mine.remove(self._one(data))

    @rule(seconds=st.sampled_from([0.1, 1.0, SHORT / 2, SHORT, LONG / 2, LONG]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.store.late)
    @rule(data=st.data())
    def what_was_late_comes(self, data: st.DataObject) -> None:
        late = self.store.late
        sent, act = late.pop(data.draw(st.integers(0, len(late) - 1)))
        if self.clock() < sent + UNANSWERED:
            act()

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def who_is_sure_holds_it(self) -> None:
        for each in self.mine:
            hold = each.hold
            if hold.state is State.ACTIVE and self.clock() < hold.deadline:
                owner, expires = self._row(hold.claim.name)
                if not (each.forced or each.ending):
                    assert owner == hold.claim.owner
                    assert hold.deadline <= expires

    @invariant()
    def what_is_released_is_free(self) -> None:
        for each in self.mine:
            if each.hold.state is State.RELEASED:
                assert self._row(each.hold.claim.name)[0] != each.hold.claim.owner

    @invariant()
    def each_active_hold_is_watched_until_its_end(self) -> None:
        for each in self._active():
            bucket, number = each.hold.entry or ({}, 0)
            heap = self.dog._schedule._heap
            entries = [due for due, _, each_bucket in heap if each_bucket is bucket]
            assert number in bucket
            assert entries
            assert min(entries) <= max(each.hold.deadline, self.clock()) + 0.02

    @invariant()
    def a_loss_is_told_once(self) -> None:
        for each in self.mine:
            assert len(each.told) == (each.hold.state is State.LOST)


Upkeep.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestUpkeep = Upkeep.TestCase
