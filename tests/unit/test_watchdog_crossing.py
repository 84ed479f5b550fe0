"""Renewals in the background that meet what the holder does at the same time."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from django_distlock.core.flow import drift, run
from django_distlock.core.hold import UNANSWERED, State
from django_distlock.core.watchdog import worker_of
from django_distlock.exceptions import LockBackendError
from django_distlock.lease import Lease
from django_distlock.metrics import Measurement, listen

from .stage import TTL, Stage
from .test_registry import Transaction
from .tools import (
    LIMIT,
    Down,
    Gate,
    drain,
    without_gc,
)


@pytest.mark.parametrize("ttl", [2.0, TTL, 300.0])
def test_an_explicit_renewal_that_crosses_ours_is_kept_alive(
    stage: Stage, ttl: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `Hold.renew` tells the process's own watchdog, which has another clock; here, the stage's.
    monkeypatch.setattr("django_distlock.core.hold.watchdog", stage.dog)
    # Which of the two came last in the store nobody knows, so the lease counts on the shorter. It
    # has to be renewed before that is over.
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate(only=lambda: stage.backend.count("renew") == 1)
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    assert run(hold.renew(ttl))
    assert hold.deadline <= stage.clock() + min(ttl, TTL)
    gate.open.set()
    drain(stage.backend)
    for _ in range(20):
        stage.step()
        assert hold.state is State.ACTIVE, hold.reason
    assert hold.claim.ttl == ttl
    assert hold.deadline >= stage.clock() + ttl / 2


@pytest.mark.parametrize("who", ["holder", "watchdog"])
def test_a_renewal_without_an_answer_may_come_after_a_longer_one(
    who: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.core.hold.watchdog", stage.dog)
    hold = stage.take(ttl=TTL)
    short = hold.claim
    stage.backend.before["renew"].append(Down("no answer"))
    if who == "holder":
        with pytest.raises(LockBackendError):
            run(hold.renew(None))
    else:
        stage.step()
    sent = stage.clock()
    assert run(hold.renew(10 * TTL))
    assert stage.backend.renew(short), "it comes now"
    assert hold.deadline <= stage.clock() + TTL
    while stage.clock() < sent + UNANSWERED - TTL:
        stage.step()
        assert hold.state is State.ACTIVE, hold.reason
        assert hold.deadline <= stage.clock() + TTL
    while stage.clock() < sent + UNANSWERED + TTL:
        stage.step()
    assert hold.deadline > stage.clock() + TTL, "the request is long gone"


def test_a_release_that_crosses_a_renewal_is_no_loss(
    stage: Stage, lost: list[dict[str, Any]]
) -> None:
    hold = stage.take(ttl=TTL)
    gate = stage.backend.gates["renew"] = Gate()
    stage.clock.advance(TTL / 3)
    stage.dog.look()
    assert gate.entered.wait(LIMIT)
    run(hold.release())
    gate.open.set()
    drain(stage.backend)
    assert hold.state is State.RELEASED
    assert lost == []
    assert not stage.backend.holds("a")
    assert stage.dog.look() == []


def test_nothing_is_renewed_after_its_release(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    run(hold.release())
    stage.clock.advance(TTL)
    stage.dog.look()
    drain(stage.backend)
    assert stage.backend.count("renew") == 0


def test_nothing_is_renewed_whose_release_failed_while_its_renewal_waited_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.core.hold.watchdog", stage.dog)
    first, second = stage.take("first", ttl=TTL), stage.take("second", ttl=TTL)
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(worker_of(stage.backend), "submit", waiting.append)
    stage.clock.advance(TTL / 3)
    stage.dog.look()  # both are handed to the worker, which is busy
    stage.backend.before["release"].append(Down("no answer"))
    with pytest.raises(LockBackendError):
        run(first.release())
    (job,) = waiting
    job()
    assert [name for verb, name in stage.backend.calls if verb == "renew"] == ["second"]
    assert first.state is second.state is State.ACTIVE
    assert not first.in_flight
    assert not second.in_flight


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


def test_a_dropped_lease_is_not_kept_alive_by_what_was_logged_of_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Handlers may keep records, and an error in one its frames, and these the lease."""
    with without_gc():
        hold = stage.take(ttl=TTL)
        stage.backend.before["renew"].append(Down("x"))
        stage.step()
        seen = weakref.ref(hold)
        del hold
        assert seen() is None
    assert "Renewing 1 locks failed" in caplog.text
    assert stage.dog._schedule.due(1e9) == []


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


def test_who_adopts_an_orphaned_lease_has_it_renewed_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("django_distlock.lease.watchdog", stage.dog)
    leases: list[Lease] = []
    first = threading.Thread(target=lambda: leases.append(Lease(stage.take(ttl=TTL))))
    first.start()
    first.join()
    del first
    (lease,) = leases
    for _ in range(2):  # at two thirds of the ttl it would be looked at the last time
        stage.step()
    assert stage.backend.count("renew") == 0
    assert caplog.text.count("is not renewed any more") == 1
    lease.adopt()
    for _ in range(10):
        stage.step()
        lease.check()
    assert stage.clock() > lease._hold.acquired + 2 * TTL
    assert stage.backend.count("renew") > 3
    lease.release()


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
    told: list[Measurement] = []
    stop = listen(told.append)
    try:
        hold = stage.take(ttl=TTL)
        stage.step()
    finally:
        stop()
    assert hold.is_active()
    (given,) = (each for each in told if each.what == "renew")
    assert (given.outcome, given.alias, given.name) == ("renewed", stage.backend.alias, "a")
    assert given.seconds == pytest.approx(TTL - drift(TTL))
