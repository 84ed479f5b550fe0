"""Renewal and loss, with the watchdog's thread and clock in the hands of the test."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from django_distlock.flow import drift, run
from django_distlock.held import Hold, State
from django_distlock.signals import lock_lost, lock_renewed
from django_distlock.upkeep import free, renew_hold

from .test_held import Transaction
from .tools import (
    LIMIT,
    Down,
    Gate,
    HandWatchdog,
    UnitBackend,
    VirtualClock,
    drain,
    make_hold,
    opened,
    without_gc,
)

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


def test_a_renewal_moves_the_deadline_from_the_time_it_was_sent(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    began = stage.clock()
    stage.step()
    assert stage.clock() == began + TTL / 3
    assert stage.backend.count("renew") == 1
    assert hold.deadline == stage.clock() + TTL - drift(TTL)
    assert not hold.in_flight
    assert stage.dog.next_due == pytest.approx(stage.clock() + TTL / 3, abs=0.2)


def test_a_lease_is_kept_as_long_as_it_is_renewed(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    while stage.clock() - hold.acquired < 10 * TTL:
        stage.step()
        assert not hold.lapse()
        assert stage.backend.holds("a")
    assert stage.backend.count("renew") == pytest.approx(30, abs=2)


def test_a_renewal_that_takes_long_counts_from_its_beginning(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate()
    stage.clock.advance(TTL / 3)
    sent = stage.clock()
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    stage.clock.advance(5.0)
    gate.open.set()
    drain(stage.backend)
    assert hold.deadline == sent + TTL - drift(TTL)
    assert stage.dog.next_due is not None
    assert stage.dog.next_due < sent + TTL / 2, "it must be able to fail once and be repeated"


def test_all_that_is_due_of_one_alias_goes_in_one_call(stage: Stage) -> None:
    holds = [stage.take(f"{number}", ttl=TTL) for number in range(25)]
    with opened(clock=stage.clock) as other:
        foreign = make_hold(other, "a", ttl=TTL)
        stage.dog.watch(foreign)
        stage.step()
        drain(other)
        assert stage.backend.batches == [25]
        assert other.batches == [1]
    assert all(hold.deadline > stage.clock() + TTL / 2 for hold in holds)


def test_a_passing_error_is_tried_again_and_no_loss(
    stage: Stage, lost: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    hold = stage.take(ttl=TTL)
    deadline = hold.deadline
    stage.backend.before["renew"] += [Down("x"), Down("x"), Down("x")]
    while hold.deadline == deadline:
        stage.step()
        assert hold.state is State.ACTIVE
        assert stage.clock() < deadline, "never tried again"
    assert stage.backend.count("renew") == 4
    assert lost == []
    assert caplog.text.count("Renewing 1 locks") == 3


def test_a_store_that_stays_down_is_asked_until_the_deadline_and_not_longer(
    stage: Stage, lost: list[dict[str, Any]]
) -> None:
    hold = stage.take(ttl=TTL)
    deadline = hold.deadline
    stage.backend.before["renew"] += [Down("x")] * 1000
    while hold.state is State.ACTIVE:
        stage.step()
        drain(stage.backend)
    assert deadline <= stage.clock() <= deadline + 0.05
    assert 5 < stage.backend.count("renew") < 200
    assert hold.state is State.LOST
    assert [facts["reason"] for facts in lost] == ["its ttl ran out without a renewal"]


def test_an_error_that_the_backend_did_not_declare_is_no_loss_either(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    # A driver's bug, a UnicodeDecodeError: once must not cost the lease.
    hold = stage.take(ttl=TTL)
    deadline = hold.deadline
    stage.backend.before["renew"].append(ValueError("not declared"))
    for _ in range(3):
        if hold.deadline == deadline:
            stage.step()
    assert hold.state is State.ACTIVE
    assert hold.deadline > deadline, "never tried again"
    assert "not declared" in caplog.text


def test_not_ours_is_a_loss_at_once(
    stage: Stage, lost: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    hold = stage.take(ttl=TTL)
    stage.backend.drop("a")
    stage.step()
    assert hold.state is State.LOST
    assert stage.clock() < hold.deadline
    assert "not ours any more" in hold.reason
    (facts,) = lost
    facts.pop("signal")
    assert facts == {
        "sender": stage.backend.alias,
        "alias": stage.backend.alias,
        "name": "a",
        "fencing_token": hold.granted.fencing_token,
        "reason": hold.reason,
    }
    assert stage.dog.next_due is None or stage.dog.look() == []


@pytest.mark.parametrize("how", ["its ttl ran out", "the store says"])
def test_every_loss_that_the_watchdog_notices_is_logged(
    stage: Stage, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    hold = stage.take(ttl=TTL, renewing=how == "the store says")
    stage.backend.drop("a")
    stage.step()
    assert hold.state is State.LOST
    (record,) = [each for each in caplog.records if "Lost lock" in each.getMessage()]
    assert record.levelno == logging.WARNING
    assert how in record.getMessage()


def test_of_a_batch_only_what_is_gone_is_lost(stage: Stage) -> None:
    kept, gone, also_kept = (stage.take(name, ttl=TTL) for name in "abc")
    stage.backend.drop("b")
    stage.step()
    assert [hold.state for hold in (kept, gone, also_kept)] == [
        State.ACTIVE,
        State.LOST,
        State.ACTIVE,
    ]


def test_a_lease_is_reported_lost_at_its_deadline_while_its_store_hangs(
    stage: Stage, lost: list[dict[str, Any]]
) -> None:
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate()
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    assert stage.dog.next_due == hold.deadline
    stage.clock.now = hold.deadline
    stage.dog.look()
    assert hold.state is State.LOST
    assert stage.backend.count("renew") == 1, "a hung store was asked again"
    gate.open.set()
    drain(stage.backend)
    assert len(lost) == 1


def test_the_late_yes_of_a_hung_store_does_not_revive_what_was_lost(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate()
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    hold.lose("given up")
    gate.open.set()
    drain(stage.backend)
    assert hold.state is State.LOST
    assert stage.dog._schedule.due(1e9) == []


# -- meeting what the holder does --------------------------------------------------------------


@pytest.mark.parametrize("ttl", [2.0, TTL, 300.0])
def test_an_explicit_renewal_that_crosses_ours_is_kept_alive(stage: Stage, ttl: float) -> None:
    # Which of the two came last in the store nobody knows, so the lease counts on the shorter. It
    # has to be renewed before that is over.
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate(only=lambda: stage.backend.count("renew") == 1)
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    assert run(renew_by_hand(stage, hold, ttl))
    assert hold.deadline <= stage.clock() + min(ttl, TTL)
    gate.open.set()
    drain(stage.backend)
    for _ in range(20):
        stage.step()
        assert hold.state is State.ACTIVE, hold.reason
    assert hold.claim.ttl == ttl
    assert hold.deadline >= stage.clock() + ttl / 2


def renew_by_hand(stage: Stage, hold: Hold, ttl: float) -> Any:
    """Renew as `Lease.renew` does, on the stage's watchdog."""
    answer = yield from renew_hold(hold, ttl)
    # `renew_hold` tells the process's own watchdog; here that is the stage's.
    stage.dog.watch(hold)
    return answer


def test_a_release_that_crosses_a_renewal_is_no_loss(
    stage: Stage, lost: list[dict[str, Any]]
) -> None:
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate()
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    run(free(hold))
    gate.open.set()
    drain(stage.backend)
    assert hold.state is State.RELEASED
    assert lost == []
    assert not stage.backend.holds("a")
    assert stage.dog.look() == []


def test_nothing_is_renewed_after_its_release(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    run(free(hold))
    stage.clock.advance(TTL)
    stage.dog.look()
    drain(stage.backend)
    assert stage.backend.count("renew") == 0


def test_a_dropped_lease_is_not_kept_alive_by_a_queue_behind_a_hung_store(stage: Stage) -> None:
    first = stage.take("first", ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate()
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    with without_gc():
        second = stage.take("second", ttl=TTL)
        stage.clock.advance(TTL / 3)
        stage.dog.look()  # now a renewal of it waits in the queue
        seen = weakref.ref(second)
        del second
        assert seen() is None
    gate.open.set()
    drain(stage.backend)
    assert ("renew", "second") not in stage.backend.calls
    assert first.state is State.ACTIVE


def test_one_hold_that_cannot_be_looked_at_does_not_spoil_the_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Transaction):
        def undone(self) -> bool:
            raise RuntimeError("the connection is in an odd state")

    broken = stage.take("a", ttl=TTL, bound=Broken())
    sound = stage.take("b", ttl=TTL)
    before = sound.deadline
    stage.step()
    drain(stage.backend)
    assert sound.deadline > before
    assert "odd state" in caplog.text
    assert broken.state is State.ACTIVE


def test_a_committed_grant_is_renewed_and_an_open_one_is_not(stage: Stage) -> None:
    transaction = Transaction()
    hold = stage.take(ttl=TTL, bound=transaction)
    stage.step()
    assert stage.backend.count("renew") == 0
    transaction.is_open = False
    stage.step()
    assert stage.backend.count("renew") == 1
    transaction.is_undone = True
    stage.step()
    assert hold.state is State.LOST
    assert "rolled back" in hold.reason


def test_a_renewal_is_told(stage: Stage) -> None:
    facts: list[dict[str, Any]] = []

    def receive(**given: Any) -> None:
        facts.append(given)

    lock_renewed.connect(receive)
    try:
        hold = stage.take(ttl=TTL)
        stage.step()
    finally:
        lock_renewed.disconnect(receive)
    (given,) = facts
    assert given["sender"] == given["alias"] == stage.backend.alias
    assert given["name"] == "a"
    assert given["fencing_token"] == hold.granted.fencing_token
    assert given["deadline_in"] == pytest.approx(TTL - drift(TTL))
