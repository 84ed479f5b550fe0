"""However acquiring ends, nothing of ours is left: each error at each step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_distlock.core.flow import TRIES_IN_CONFLICT, Granted, Pause
from django_distlock.core.values import Refusal
from django_distlock.exceptions import LockBackendError, StoreConflictError

from .steps import CLAIM, TTL, ByHand

ENDS: list[Callable[[], BaseException]] = [
    KeyboardInterrupt,
    SystemExit,
    asyncio.CancelledError,
    lambda: RuntimeError("a driver's error that is not declared"),
    lambda: TimeoutError("a soft time limit, raised by a signal handler"),
]
IDS = ["KeyboardInterrupt", "SystemExit", "CancelledError", "RuntimeError", "TimeoutError"]


@pytest.fixture(autouse=True, params=[False, True], ids=["", "ahead"])
def _ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first attempt in the flow, or ahead of it."""
    monkeypatch.setattr(ByHand, "ahead", request.param)


def at_first_try() -> ByHand:
    return ByHand(wait=60.0).expect("try_acquire")


def at_pause() -> ByHand:
    return ByHand(wait=60.0).refuse().expect("pause")


def at_later_try() -> ByHand:
    return ByHand(wait=60.0).refuse().sleep().expect("try_acquire")


def at_pause_after_late_grant() -> ByHand:
    return ByHand(wait=60.0).grant(took=TTL).expect("pause")


def at_pause_after_conflict() -> ByHand:
    return ByHand(wait=60.0).fail(StoreConflictError("busy")).expect("pause")


STEPS = [
    at_first_try,
    at_pause,
    at_later_try,
    at_pause_after_late_grant,
    at_pause_after_conflict,
]


@pytest.mark.parametrize("end", ENDS, ids=IDS)
@pytest.mark.parametrize("stopped", STEPS, ids=lambda step: step.__name__)
def test_an_end_at_any_step_withdraws_and_goes_on(
    stopped: Callable[[], ByHand], end: Callable[[], BaseException]
) -> None:
    drive, error = stopped(), end()
    drive.fail(error).expect("release").answer(True)
    assert drive.error is error
    assert drive.abandoned == []


@pytest.mark.parametrize("end", ENDS, ids=IDS)
@pytest.mark.parametrize("stopped", STEPS, ids=lambda step: step.__name__)
def test_a_withdrawal_that_fails_is_handed_on(
    stopped: Callable[[], ByHand], end: Callable[[], BaseException]
) -> None:
    drive, error = stopped(), end()
    drive.fail(error).expect("release").fail(LockBackendError("down"))
    assert drive.error is error
    assert drive.abandoned == [CLAIM]


@pytest.mark.parametrize("again", ENDS, ids=IDS)
@pytest.mark.parametrize("stopped", STEPS, ids=lambda step: step.__name__)
def test_a_withdrawal_that_is_interrupted_is_handed_on(
    stopped: Callable[[], ByHand], again: Callable[[], BaseException]
) -> None:
    # Ctrl-C twice, a task cancelled twice: it is unknown whether the release was carried out.
    error = again()
    drive = stopped().fail(KeyboardInterrupt()).expect("release").fail(error)
    assert drive.error is error
    assert drive.abandoned == [CLAIM]


def test_what_a_tests_guard_refused_is_not_handed_on() -> None:
    # Django's SimpleTestCase guards its own thread only, with an AssertionError.
    drive = at_first_try().fail(AssertionError("not allowed")).expect("release")
    drive.fail(AssertionError("not allowed"))
    assert str(drive.error) == "not allowed"
    assert drive.abandoned == []


@pytest.mark.parametrize("end", ENDS, ids=IDS)
def test_leaving_the_queue_that_is_interrupted_is_handed_on(
    end: Callable[[], BaseException],
) -> None:
    error = end()
    drive = ByHand(wait=0, queues=True).refuse().expect("withdraw").fail(error)
    assert drive.error is error
    assert drive.abandoned == [CLAIM]


@pytest.mark.parametrize("stopped", STEPS, ids=lambda step: step.__name__)
def test_a_flow_that_nobody_drives_any_more_hands_its_claim_on(
    stopped: Callable[[], ByHand],
) -> None:
    drive = stopped()
    drive.close()
    assert drive.abandoned == [CLAIM]


def test_a_flow_that_is_dropped_while_it_withdraws_hands_its_claim_on() -> None:
    drive = at_first_try().fail(KeyboardInterrupt()).expect("release")
    drive.close()
    assert drive.abandoned == [CLAIM]


def test_a_flow_that_never_began_leaves_nothing_to_do() -> None:
    drive = ByHand()
    drive.abandoned.clear()
    assert drive.grant().over
    drive.close()
    assert drive.abandoned == []


# -- at random -------------------------------------------------------------------------------------

TOOK = st.floats(0.0, 15.0)
ANSWERS = st.one_of(
    st.tuples(st.just("grant"), TOOK),
    st.tuples(st.just("refuse"), TOOK),
    st.tuples(st.just("conflict"), TOOK),
    st.tuples(st.just("down"), TOOK),
    st.tuples(st.just("interrupt"), TOOK),
)


class Model:
    """What a store may hold of ours, told by what it was asked and answered."""

    def __init__(self, drive: ByHand) -> None:
        self.drive = drive
        self.ours = False  # perhaps: an answer may have been lost
        self.queued = False
        self.store_took = 0.0
        self.slept = 0.0

    def answer(self, kind: str, took: float) -> None:
        """Let the store, or the world, answer the step at which the flow stands."""
        drive = self.drive
        verb = drive.step.verb
        if isinstance(drive.step, Pause):
            # A pause takes what it was asked to at most; the answer says for how much of it.
            seconds = drive.step.args[1] * min(took / 15.0, 1.0)
            self.slept += seconds
            if kind == "interrupt":
                drive.fail(KeyboardInterrupt(), took=seconds)
            else:
                drive.sleep(seconds)
            return
        self.store_took += took
        if kind in ("down", "interrupt"):
            self.ours = self.ours or verb == "try_acquire"
            self.queued = self.queued or (verb == "try_acquire" and drive.store.queues)
            error = LockBackendError("down") if kind == "down" else KeyboardInterrupt()
            drive.fail(error, took=took)
        elif kind == "conflict":
            drive.fail(StoreConflictError("busy"), took=took)
        elif verb == "release":
            self.ours = self.queued = False
            drive.answer(True, took=took)
        elif verb == "withdraw":
            self.queued = False
            drive.answer(True, took=took)
        elif kind == "grant":
            self.ours, self.queued = True, False
            drive.grant(took=took)
        else:
            self.ours, self.queued = False, drive.store.queues
            drive.refuse(took, took=took)


@given(
    st.lists(ANSWERS, max_size=25),
    st.none() | st.floats(0.0, 20.0),
    st.booleans(),
    st.sampled_from(["grant", "refuse", "conflict", "down"]),
)
def test_any_sequence_of_answers_ends_well(
    answers: list[tuple[str, float]], wait: float | None, queues: bool, at_last: str
) -> None:
    drive = ByHand(wait=wait, queues=queues)
    model = Model(drive)
    for kind, took in answers:
        if not drive.over:
            model.answer(kind, took)
    for _ in range(2000):
        if drive.over:
            break
        model.answer("grant" if wait is None else at_last, 1.0 if at_last == "refuse" else 0.1)
    assert drive.over, "it waits for ever"

    if isinstance(drive.result, Granted):
        assert drive.clock() < drive.result.deadline, "returned a lease that is over"
        assert drive.abandoned == []
    elif model.ours or model.queued:
        assert drive.abandoned == [CLAIM], "left something in the store"
    if isinstance(drive.error, LockBackendError):
        assert any(word in str(drive.error) for word in ("down", "busy", "took longer"))
    elif drive.error is not None:
        assert isinstance(drive.error, KeyboardInterrupt)
    else:
        assert isinstance(drive.result, Granted | Refusal)
    if wait is not None:
        # What the flow adds of its own: sleeps within the wait, and a few short ones in conflict.
        most = wait + TRIES_IN_CONFLICT * 0.01 + 1e-6
        assert model.slept <= most
        assert drive.clock() - drive.began <= most + model.store_took
