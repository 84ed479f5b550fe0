"""Renewal and loss, with the watchdog's thread and clock in the hands of the test."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_distlock.core.flow import drift
from django_distlock.core.hold import State
from django_distlock.core.watchdog import PART, STEPS

from .stage import TTL, Stage
from .tools import (
    LIMIT,
    Down,
    Gate,
    drain,
    make_hold,
    opened,
)

STEP = TTL / PART / STEPS


def test_a_renewal_moves_the_deadline_from_the_time_it_was_sent(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    began = stage.clock()
    stage.step()
    assert began + TTL / 3 - STEP < stage.clock() <= began + TTL / 3
    assert stage.backend.count("renew") == 1
    assert hold.deadline == stage.clock() + TTL - drift(TTL)
    assert not hold.in_flight
    assert stage.dog.next_due is not None
    assert TTL / 3 - STEP - drift(TTL) < stage.dog.next_due - stage.clock() <= TTL / 3


def test_a_lease_is_kept_as_long_as_it_is_renewed(stage: Stage) -> None:
    hold = stage.take(ttl=TTL)
    while stage.clock() - hold.acquired < 10 * TTL:
        stage.step()
        assert not hold.is_lost()
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


def test_those_that_were_taken_one_after_the_other_are_renewed_together(stage: Stage) -> None:
    stage.clock.now = 1000 * TTL  # the beginning of a step
    holds = []
    for number in range(40):
        holds.append(stage.take(f"{number}", ttl=TTL))
        stage.clock.advance(STEP / 20)
    while sum(stage.backend.batches) < 40:
        stage.step()
    assert stage.backend.batches == [20, 20]
    assert all(hold.deadline > stage.clock() + TTL - 2 * STEP for hold in holds)


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


def test_what_is_taken_anew_after_renewals_that_failed_is_renewed(
    stage: Stage, lost: list[dict[str, Any]]
) -> None:
    """Nothing of the lost hold of that name and thread stands in the way of the next one."""
    first = stage.take(ttl=TTL)
    stage.backend.before["renew"] += [Down("x")] * 1000
    while first.state is State.ACTIVE:
        stage.step()
    stage.backend.before["renew"].clear()
    stage.backend.drop("a")
    second = stage.take(ttl=TTL, owner="me again")
    while stage.clock() - second.acquired < 5 * TTL:
        stage.step()
        assert not second.is_lost()
    assert len(lost) == 1


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
        "label": None,
        "name": "a",
        "fencing_token": hold.fencing_token,
        "outcome": "lost",
        "reason": hold.reason,
        "held_for": stage.clock() - hold.acquired,
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
