"""The algorithm of acquiring, answered by hand: grants, refusals, conflicts and late answers."""

from __future__ import annotations

import subprocess
import sys
from itertools import count

import pytest

from django_distlock.backends import table
from django_distlock.core import flow
from django_distlock.core.flow import (
    LATE,
    MIN_ATTEMPT_TIMEOUT,
    TRIES_IN_CONFLICT,
    Call,
    Granted,
    Pause,
    Step,
    drift,
    insist,
)
from django_distlock.core.values import Bound, Grant, Refusal
from django_distlock.exceptions import LockBackendError, StoreConflictError
from tests.patience import ANSWERED

from .steps import CLAIM, TTL, ByHand, NoStore
from .test_registry import Transaction


@pytest.fixture(autouse=True, params=[False, True], ids=["", "ahead"])
def _ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first attempt in the flow, or ahead of it."""
    monkeypatch.setattr(ByHand, "ahead", request.param)


def test_granted_at_once() -> None:
    drive = ByHand().expect("try_acquire").grant(7)
    assert drive.result == Granted(7, drive.deadline(drive.began))
    assert drive.verbs == ["try_acquire"]
    assert drive.abandoned == []


def test_the_lease_counts_from_before_the_question() -> None:
    drive = ByHand().grant(7, took=4.0)
    assert drive.result == Granted(7, drive.began + TTL - drift(TTL))


def test_the_deadline_goes_by_what_the_store_grants() -> None:
    drive = ByHand().grant(7, ttl=2.0)
    assert drive.result == Granted(7, drive.deadline(drive.began, 2.0))


def test_what_the_grant_is_bound_to_goes_along() -> None:
    bound: Bound = Transaction()
    drive = ByHand().answer(Grant(7, TTL, bound))
    assert isinstance(drive.result, Granted)
    assert drive.result.bound is bound


def test_refused_then_granted() -> None:
    drive = ByHand()
    drive.refuse().expect("pause").sleep().expect("try_acquire")
    asked = drive.clock()
    drive.grant(8, took=0.1)
    assert drive.result == Granted(8, drive.deadline(asked))
    assert drive.verbs == ["try_acquire", "pause", "try_acquire"]


def test_without_a_wait_the_store_is_asked_once() -> None:
    drive = ByHand(wait=0).refuse(4.0)
    assert drive.result == Refusal(4.0, "note")
    assert drive.verbs == ["try_acquire"]
    assert drive.abandoned == []


def test_a_grant_after_the_wait_is_over_still_counts() -> None:
    drive = ByHand(wait=1.0).grant(took=3.0)
    assert isinstance(drive.result, Granted)


def test_waiting_for_ever_goes_on() -> None:
    drive = ByHand(wait=None)
    for _ in range(1000):
        drive.refuse(took=1.0).sleep()
    assert isinstance(drive.grant().result, Granted)


@pytest.mark.parametrize("queues", [True, False])
def test_only_a_queue_is_left_when_the_wait_is_over(queues: bool) -> None:
    drive = ByHand(wait=0.5, queues=queues).refuse(9.0, took=0.6)
    if queues:
        drive.expect("withdraw").answer(False)
    assert drive.result == Refusal(9.0, "note")
    assert drive.verbs == ["try_acquire", "withdraw"] if queues else ["try_acquire"]
    assert drive.abandoned == []


def test_a_queue_that_cannot_be_left_is_left_later() -> None:
    drive = ByHand(wait=0, queues=True).refuse().expect("withdraw").fail(LockBackendError("down"))
    assert drive.result == Refusal(None, "note")
    assert drive.abandoned == [CLAIM]


def test_what_is_granted_with_the_word_that_ends_a_wait_is_not_asked_for() -> None:
    drive = ByHand(wait=60.0, queues=True).answer(Refusal(9.0, "note", queue=True)).expect("queue")
    drive.answer(Grant(7, 12.0), took=3.0)
    # It is counted from the end of the wait: the store takes off what has passed before.
    assert drive.result == Granted(7, drive.deadline(drive.clock(), 12.0))
    assert drive.verbs == ["try_acquire", "queue"]


def test_who_is_refused_with_the_word_that_ends_a_wait_waits_on() -> None:
    refusal = Refusal(9.0, "note", queue=True)
    drive = ByHand(wait=1.0, queues=True).answer(refusal).expect("queue")
    drive.answer(refusal, took=0.4).expect("queue")
    assert drive.step.args[2] == pytest.approx(0.6)
    drive.answer(Refusal(8.0, "other", queue=True), took=0.7).expect("withdraw").answer(False)
    assert drive.result == Refusal(8.0, "other", queue=True)
    assert drive.verbs == ["try_acquire", "queue", "queue", "withdraw"]


def test_what_is_over_when_it_is_granted_with_the_end_of_a_wait_is_asked_for_again() -> None:
    drive = ByHand(wait=60.0, queues=True).answer(Refusal(9.0, "note", queue=True)).expect("queue")
    drive.answer(Grant(7, -1.0)).expect("pause").sleep().expect("try_acquire")
    asked = drive.clock()
    drive.grant(7)
    assert drive.result == Granted(7, drive.deadline(asked))


def test_a_grant_that_came_after_its_deadline_is_not_returned() -> None:
    drive = ByHand(wait=60.0).grant(7, took=TTL).expect("pause").sleep().expect("try_acquire")
    # The same owner asks again and is given the same token, with its ttl anew.
    asked = drive.clock()
    drive.grant(7)
    assert drive.result == Granted(7, drive.deadline(asked))


def test_a_grant_just_within_the_drift_allowance_is_too_late() -> None:
    assert not ByHand(wait=60.0).grant(took=TTL - drift(TTL)).over
    assert ByHand(wait=60.0).grant(took=TTL - drift(TTL) - 0.001).over


def test_a_grant_too_late_with_no_wait_left_is_an_error_and_withdrawn() -> None:
    drive = ByHand(wait=1.0).grant(took=TTL + 1)
    assert isinstance(drive.error, LockBackendError)
    assert "longer to answer than the lease lasts" in str(drive.error)
    assert drive.abandoned == [CLAIM]


def test_a_failing_store_is_not_asked_again_but_the_claim_is_handed_on() -> None:
    error = LockBackendError("down")
    drive = ByHand().fail(error)
    assert drive.error is error
    assert drive.verbs == ["try_acquire"]
    assert drive.abandoned == [CLAIM]


def test_a_store_that_fails_while_pausing_ends_the_wait() -> None:
    drive = ByHand(queues=True).refuse().expect("pause").fail(LockBackendError("down"))
    assert isinstance(drive.error, LockBackendError)
    assert drive.abandoned == [CLAIM]


def test_a_conflict_is_tried_again_while_there_is_wait() -> None:
    drive = ByHand(wait=1.0)
    for _ in range(3 * TRIES_IN_CONFLICT):
        drive.expect("try_acquire").fail(StoreConflictError("dead lock")).expect("pause").sleep()
    assert isinstance(drive.grant().result, Granted)


def test_a_conflict_is_tried_again_a_few_times_without_wait() -> None:
    drive = ByHand(wait=0)
    for _ in range(TRIES_IN_CONFLICT - 1):
        drive.expect("try_acquire").fail(StoreConflictError("dead lock")).expect("pause")
        assert 0 < drive.step.args[1] <= 0.01
        drive.sleep()
    assert isinstance(drive.grant().result, Granted)


def test_a_conflict_without_end_and_without_wait_is_an_error() -> None:
    drive = ByHand(wait=0)
    while not drive.over:
        if isinstance(drive.step, Pause):
            drive.sleep()
        else:
            drive.fail(StoreConflictError("dead lock"))
    assert isinstance(drive.error, StoreConflictError)
    assert drive.verbs.count("try_acquire") == TRIES_IN_CONFLICT
    assert drive.abandoned == [CLAIM]


def test_after_conflicts_a_refusal_is_a_refusal() -> None:
    drive = ByHand(wait=0).fail(StoreConflictError("dead lock")).sleep().refuse(3.0)
    assert drive.result == Refusal(3.0, "note")


def test_the_wait_is_over_after_conflicts_only_when_the_store_has_answered() -> None:
    # "Not obtained" is a statement about the lock: a conflict says nothing about it.
    drive = ByHand(wait=1.0).fail(StoreConflictError("busy"), took=1.0).expect("pause").sleep()
    assert drive.expect("try_acquire").refuse().result == Refusal(None, "note")


def test_conflicts_do_not_stretch_the_wait() -> None:
    # Once more at the most, and not the five times that answers at once would get.
    drive = ByHand(wait=1.0).fail(StoreConflictError("busy"), took=1.0 + LATE + 0.01)
    drive.expect("pause").sleep().fail(StoreConflictError("busy"))
    assert isinstance(drive.error, StoreConflictError)
    assert drive.abandoned == [CLAIM]


# -- pauses ------------------------------------------------------------------------------------


def test_a_pause_is_the_next_delay() -> None:
    drive = ByHand(wait=None, delays=count(0.25, 0.25))
    drive.refuse().expect("pause")
    assert drive.step.args[1] == 0.25
    assert drive.sleep().refuse().step.args[1] == 0.5


def test_a_pause_ends_with_the_wait() -> None:
    drive = ByHand(wait=1.0, delays=count(0.8, 0.0)).refuse(took=0.7).expect("pause")
    assert drive.step.args[1] == pytest.approx(0.3)
    drive.sleep().expect("try_acquire").refuse()
    assert drive.clock() - drive.began == pytest.approx(1.0)
    assert isinstance(drive.result, Refusal)


def test_a_pause_ends_when_the_holders_lease_does() -> None:
    drive = ByHand(wait=None, delays=count(5.0, 0.0)).refuse(0.3).expect("pause")
    assert 0.3 <= drive.step.args[1] <= 0.302


@pytest.mark.parametrize("remaining", [None, 0.0, -2.0])
def test_a_remaining_time_that_says_nothing_is_no_limit(remaining: float | None) -> None:
    drive = ByHand(wait=None, delays=count(5.0, 0.0)).refuse(remaining).expect("pause")
    assert drive.step.args[1] == 5.0


def test_a_pause_may_be_ended_early_by_the_store() -> None:
    drive = ByHand().refuse().sleep(0.0).expect("try_acquire").grant()
    assert isinstance(drive.result, Granted)


# -- how long one question may take ------------------------------------------------------------


def test_a_question_may_take_a_second_at_least() -> None:
    """The tests give it two, see `tests/patience.py`: the guarantees say one."""
    shown = "from django_distlock.core import flow; print(flow.MIN_ATTEMPT_TIMEOUT)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, check=True)
    assert float(done.stdout) == 1.0
    assert MIN_ATTEMPT_TIMEOUT == vars(table)["MIN_ATTEMPT_TIMEOUT"] == ANSWERED


@pytest.mark.parametrize(
    ("wait", "limit"),
    [(None, 5.0), (60.0, 5.0), (3.0, 3.0), (0.2, MIN_ATTEMPT_TIMEOUT), (0.0, MIN_ATTEMPT_TIMEOUT)],
)
def test_a_question_is_limited_by_the_wait_and_the_command_timeout(
    wait: float | None, limit: float
) -> None:
    assert ByHand(wait=wait).step.args[1] == limit


def test_the_limit_shrinks_with_the_wait() -> None:
    drive = ByHand(wait=6.0).refuse(took=1.5).sleep(0.5)
    assert drive.expect("try_acquire").step.args[1] == pytest.approx(4.0)


def test_a_short_command_timeout_wins() -> None:
    assert ByHand(wait=0, command_timeout=0.3).step.args[1] == 0.3


# -- insisting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "patience"), [(None, 5.0), (2.0, 2.0)])
def test_insisting_asks_again_after_conflicts_until_its_patience_ends(
    given: float | None, patience: float
) -> None:
    store = NoStore()
    steps: flow.Flow[bool] = insist(store, "renew", CLAIM, patience=given)
    began, asked = store.clock(), next(steps)

    def conflicts(asked: Step) -> None:
        while True:
            assert isinstance(asked, Call)
            assert (asked.verb, asked.args) == ("renew", (CLAIM,))
            pause = steps.throw(StoreConflictError("busy"))
            assert isinstance(pause, Pause)
            store.clock.advance(pause.args[1])
            asked = steps.send(None)

    with pytest.raises(StoreConflictError):
        conflicts(asked)
    assert patience - 0.2 < store.clock() - began < patience


def test_a_wait_in_the_queue_that_meets_a_conflict_is_followed_by_the_next_attempt() -> None:
    drive = ByHand().answer(Refusal(None, "note", queue=True)).expect("queue")
    drive.fail(StoreConflictError("a server is restarted"))
    drive.expect("pause")
    assert isinstance(drive.sleep(0.1).expect("try_acquire").grant().result, Granted)


def test_insisting_returns_the_answer_and_raises_other_errors() -> None:
    steps: flow.Flow[bool] = insist(NoStore(), "renew", CLAIM)
    first: Step = next(steps)
    assert isinstance(first, Call)
    with pytest.raises(StopIteration) as stop:
        steps.send(True)
    assert stop.value.value is True
    steps = insist(NoStore(), "renew", CLAIM)
    next(steps)
    with pytest.raises(LockBackendError, match="down"):
        steps.throw(LockBackendError("down"))
