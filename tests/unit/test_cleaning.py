"""Cleaning step by step, and what the backends without a store clean."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from django_distlock import InvalidLockError, LockBackendError
from django_distlock.backends.dummy import DummyBackend
from django_distlock.conf import AliasConf
from django_distlock.core.cleaning import CONFLICTS, LONGEST_REST, Rest, check_policy, clean
from django_distlock.core.flow import Call, Flow
from django_distlock.core.values import Cleaned, CleanPolicy
from django_distlock.exceptions import StoreConflictError

from .tools import UnitBackend, VirtualClock, claim_of, opened

POLICY = CleanPolicy(older_than=60)
MORE = Cleaned(removed=2, seen=3, cursor="c")


def begin(
    backend: UnitBackend, clock: VirtualClock, policy: CleanPolicy = POLICY
) -> tuple[Flow[Cleaned], Call]:
    """Return a cleaning that waits for the answer to its first call, and that call."""
    steps = clean(backend, policy, clock=clock)
    return steps, call(next(steps))


def call(step: object) -> Call:
    """Return a step that asks the store for a batch."""
    assert isinstance(step, Call)
    assert step.verb == "clean_batch"
    return step


def rest(step: object) -> float:
    """Return for how long a step leaves the store alone."""
    assert isinstance(step, Rest)
    return step.seconds


def test_each_batch_begins_where_the_last_ended(backend: UnitBackend, clock: VirtualClock) -> None:
    steps, first = begin(backend, clock)
    assert first.args == (POLICY, "")
    rest(steps.send(MORE))
    assert call(next(steps)).args == (POLICY, "c")
    with pytest.raises(StopIteration) as stop:
        steps.send(Cleaned(removed=1, seen=1))
    assert stop.value.value == Cleaned(removed=3, seen=4)


@pytest.mark.parametrize(("took", "rests"), [(0.02, 0.02), (5.0, LONGEST_REST)])
def test_others_have_the_store_for_as_long_as_the_batch_took(
    backend: UnitBackend, clock: VirtualClock, took: float, rests: float
) -> None:
    steps, _ = begin(backend, clock)
    clock.advance(took)
    assert rest(steps.send(MORE)) == pytest.approx(rests)


def test_what_wrote_nothing_needs_no_rest(backend: UnitBackend, clock: VirtualClock) -> None:
    steps, _ = begin(backend, clock)
    call(steps.send(Cleaned(removed=0, seen=3, cursor="c")))
    steps, _ = begin(backend, clock, CleanPolicy(older_than=60, dry_run=True))
    call(steps.send(MORE))


def test_a_batch_in_conflict_is_tried_again(backend: UnitBackend, clock: VirtualClock) -> None:
    steps, first = begin(backend, clock)
    for delay in CONFLICTS:
        assert rest(steps.throw(StoreConflictError("a dead lock"))) == delay
        assert call(next(steps)) == first
    with pytest.raises(StopIteration) as stop:
        steps.send(Cleaned(removed=1, seen=1))
    assert stop.value.value == Cleaned(removed=1, seen=1)


def test_conflicts_without_an_end_are_an_error(backend: UnitBackend, clock: VirtualClock) -> None:
    steps, _ = begin(backend, clock)
    for _ in CONFLICTS:
        rest(steps.throw(StoreConflictError("a dead lock")))
        next(steps)
    with pytest.raises(StoreConflictError):
        steps.throw(StoreConflictError("a dead lock"))


def test_a_store_that_fails_is_not_asked_again(backend: UnitBackend, clock: VirtualClock) -> None:
    steps, _ = begin(backend, clock)
    with pytest.raises(LockBackendError):
        steps.throw(LockBackendError("down"))


def test_a_rest_rests_in_both_modes() -> None:
    Rest(0.0).do()
    asyncio.run(Rest(0.0).ado())


@pytest.mark.parametrize("older_than", [60, 60.5, timedelta(days=7)])
def test_a_policy_within_the_range(older_than: Any) -> None:
    policy = check_policy(older_than, True, 10_000, "a")
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    assert policy == CleanPolicy(older_than=float(seconds), dry_run=True, batch=10_000)


@pytest.mark.parametrize("batch", [0, -1, 10_001, True, None, "5", 1.5])
def test_a_batch_out_of_range(batch: Any) -> None:
    with pytest.raises(InvalidLockError, match="batch is a number from 1 to 10000") as caught:
        check_policy(60, False, batch, "a")
    assert caught.value.alias == "a"


# -- backends without a store --------------------------------------------------------------------


def test_leases_that_ran_out_are_cleaned_from_memory(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        for name in ("held", "lost", "lost lately", "released"):
            backend.try_acquire(claim_of(backend, name, owner=name, ttl=10), 1.0)
        backend.release(claim_of(backend, "released", owner="released"))
        for owner, ttl in (("held", 200), ("lost lately", 50)):
            assert backend.renew(claim_of(backend, owner, owner=owner, ttl=ttl))
        clock.advance(100)
        for _ in range(2):
            dry = backend.clean(older_than=60, dry_run=True)
            assert dry == Cleaned(removed=1, seen=3)
        assert backend.clean(older_than=60) == Cleaned(removed=1, seen=3)
        assert backend.clean(older_than=60) == Cleaned(removed=0, seen=2)
        assert backend.holds("held")


def test_aliases_of_one_location_are_cleaned_together() -> None:
    with (
        opened(location="one place") as one,
        opened(location="one place") as other,
        opened() as alone,
    ):
        assert one.cleaned_with() == other.cleaned_with() != alone.cleaned_with()


def test_the_dummy_has_nothing() -> None:
    dummy = DummyBackend("d", AliasConf(backend="dummy"))
    assert dummy.clean(older_than=60) == Cleaned()
    other = DummyBackend("e", AliasConf(backend="dummy"))
    assert dummy.cleaned_with() != other.cleaned_with()
