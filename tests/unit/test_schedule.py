"""When the watchdog looks at what, and whether it renews: told the time by the test."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_distlock.core import watchdog
from django_distlock.core.hold import Hold, State
from django_distlock.core.watchdog import LEAST, PART, Schedule, wants_renewal

from .test_registry import Transaction
from .tools import HandWatchdog, UnitBackend, VirtualClock, in_thread, make_hold, opened, traced

# -- the schedule ----------------------------------------------------------------------------------


def test_nothing_is_due_in_an_empty_schedule() -> None:
    schedule = Schedule()
    assert schedule.next_due() is None
    assert schedule.due(math.inf) == []


def test_what_is_due_comes_in_order_and_once(backend: UnitBackend) -> None:
    schedule = Schedule()
    holds = {due: make_hold(backend, f"due {due}") for due in (5.0, 1.0, 3.0, 4.0)}
    for due, hold in holds.items():
        schedule.add(hold, due)
    assert schedule.next_due() == 1.0
    assert schedule.due(0.999) == []
    assert schedule.due(3.0) == [holds[1.0], holds[3.0]]
    assert schedule.due(3.0) == []
    assert schedule.due(math.inf) == [holds[4.0], holds[5.0]]


def test_trimmed_it_tells_when_the_first_that_is_still_held_is_due(backend: UnitBackend) -> None:
    schedule = Schedule()
    holds = [make_hold(backend, f"due {due}") for due in range(4)]
    for due, hold in enumerate(holds):
        schedule.add(hold, float(due))
    for hold in (holds[0], holds[2]):
        hold.move(State.ACTIVE, State.RELEASED)
    schedule.add(holds[1], 5.0)
    schedule.trim()
    assert schedule.next_due() == 3.0
    assert schedule.due(math.inf) == [holds[3], holds[1]]
    schedule.trim()
    assert schedule.next_due() is None


@pytest.mark.parametrize("order", [(1.0, 5.0), (5.0, 1.0)])
def test_only_the_last_word_counts(backend: UnitBackend, order: tuple[float, float]) -> None:
    schedule = Schedule()
    hold = make_hold(backend, "a")
    for due in order:
        schedule.add(hold, due)
    assert schedule.due(order[1] - 0.5) == []
    assert schedule.due(math.inf) == [hold]


def test_saying_the_same_twice_is_saying_it_once(backend: UnitBackend) -> None:
    schedule = Schedule()
    hold = make_hold(backend, "a")
    for _ in range(3):
        schedule.add(hold, 5.0)
    assert schedule.due(5.0) == [hold]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1.0, 2.0, 3.0])), max_size=40))
def test_each_hold_is_due_once_at_its_last_time(said: list[tuple[int, float]]) -> None:
    with opened() as backend:
        schedule = Schedule()
        holds = [make_hold(backend, f"{number}") for number in range(6)]
        last: dict[int, float] = {}
        for number, due in said:
            schedule.add(holds[number], due)
            last[number] = due
        for now in (1.0, 2.0, 3.0):
            due_now = [number for number, due in last.items() if due == now]
            assert sorted(holds.index(hold) for hold in schedule.due(now)) == sorted(due_now)


def test_what_is_released_or_dropped_is_not_due(backend: UnitBackend) -> None:
    schedule = Schedule()
    released, dropped = make_hold(backend, "a"), make_hold(backend, "b")
    schedule.add(released, 1.0)
    schedule.add(dropped, 1.0)
    released.move(State.ACTIVE, to=State.RELEASED)
    del dropped
    assert schedule.due(math.inf) == []


@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["at one time", "at a time each"])
def test_what_is_over_is_swept_out_long_before_it_is_due(
    backend: UnitBackend, apart: float
) -> None:
    schedule = Schedule()
    for number in range(10_000):
        hold = make_hold(backend, f"{number}")
        if schedule.add(hold, 1e9 + apart * number) and schedule.is_crowded():
            schedule.sweep()
        hold.move(State.ACTIVE, to=State.RELEASED)
    assert len(schedule) <= 1
    assert len(schedule._heap) <= LEAST


def test_ten_thousand_holds_are_each_due_once(backend: UnitBackend) -> None:
    schedule = Schedule()
    holds = [make_hold(backend, f"{number}") for number in range(10_000)]
    times = list(range(10_000))
    random.Random(7).shuffle(times)
    for sooner in (0.5, 0.25, 0.0):  # as if renewed twice
        for hold, due in zip(holds, times, strict=True):
            schedule.add(hold, due - sooner)
    schedule.sweep()
    assert len(schedule) == len(holds)
    assert len(schedule._heap) <= len(holds)
    seen: list[Hold] = []
    for now in range(0, 10_000, 100):
        seen += schedule.due(float(now))
    seen += schedule.due(math.inf)
    wanted = dict(zip(holds, times, strict=True))
    assert [wanted[hold] for hold in seen] == list(range(10_000))


def test_a_live_hold_survives_the_sweeping(backend: UnitBackend) -> None:
    schedule = Schedule()
    kept = make_hold(backend, "kept")
    schedule.add(kept, 7.0)
    for number in range(200):
        schedule.add(make_hold(backend, f"{number}"), 8.0)
    schedule.sweep()
    assert len(schedule) <= 2, "the last one's frame may still be there"
    assert schedule.due(7.0) == [kept]


@pytest.mark.parametrize("method", ["add", "sweep", "trim", "due"])
def test_what_is_added_in_the_middle_of_a_method_is_due(backend: UnitBackend, method: str) -> None:
    """As by a signal's handler in the middle of `add`, and by a finalizer in each."""
    moment, reached = 0, True
    while reached:
        schedule = Schedule()
        holds = [make_hold(backend, f"{moment}-{number}") for number in range(6)]
        over, kept, renewed, late, handlers, handlers_renewed = holds
        for hold in (over, kept, handlers_renewed):
            schedule.add(hold, 1.0)
        schedule.add(renewed, 3.0)
        over.move(State.ACTIVE, State.RELEASED)

        def come_in(
            schedule: Schedule = schedule, first: Hold = handlers, again: Hold = handlers_renewed
        ) -> None:
            schedule.add(first, 1.0)
            schedule.add(again, 2.0)

        calls: dict[str, Callable[[], Any]] = {
            "add": partial(schedule.add, renewed, 1.0),
            "sweep": schedule.sweep,
            "trim": schedule.trim,
            "due": partial(schedule.due, 1.0),
        }
        with _at_opcode(moment, come_in) as told:
            found = calls[method]()
        schedule.add(late, 1.0)
        found = [*(found if method == "due" else ()), *schedule.due(math.inf)]
        assert {kept, renewed, late} <= set(found)
        assert over not in found
        reached = bool(told)
        if reached:
            assert {handlers, handlers_renewed} <= set(found)
        moment += 1
    assert moment > 20


@pytest.mark.parametrize("due", [1.0, 5.0], ids=["sooner", "later"])
def test_an_interruption_in_the_middle_of_add_leaves_it_watched(
    backend: UnitBackend, due: float
) -> None:
    moment, reached = 0, True
    while reached:
        schedule = Schedule()
        hold = make_hold(backend, f"{moment}")
        schedule.add(hold, 3.0)
        with suppress(KeyboardInterrupt), _at_opcode(moment, _interrupt) as told:
            schedule.add(hold, due)
        assert hold in schedule.due(max(3.0, due))
        reached = bool(told)
        moment += 1
    assert moment > 20


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def _at_opcode(number: int, call: Callable[[], None]) -> Iterator[list[int]]:
    """Have ``call`` called before one step of the interpreter in the watchdog's code.

    Yields a list that is empty until that step is reached.
    """
    reached: list[int] = []
    step = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal step
        if frame.f_code.co_filename != watchdog.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            step += 1
            if step > number and not reached:
                reached.append(step)
                call()
        return trace

    with traced(trace):
        yield reached


# -- when a hold is looked at ----------------------------------------------------------------------


def test_a_renewed_hold_is_looked_at_after_a_third_of_its_ttl(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        dog = HandWatchdog(clock)
        dog.watch(make_hold(backend, "a", ttl=30.0))
        assert dog.next_due == clock() + 30.0 / PART == clock() + 10.0


def test_a_hold_that_is_not_renewed_is_looked_at_when_it_ends(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        dog = HandWatchdog(clock)
        hold = make_hold(backend, "a", ttl=30.0, renewing=False)
        dog.watch(hold)
        assert dog.next_due == hold.deadline == clock() + 30.0


def test_a_hold_near_its_end_is_not_looked_at_after_it(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        dog = HandWatchdog(clock)
        hold = make_hold(backend, "a", ttl=30.0)
        clock.advance(25.0)
        dog.watch(hold)
        assert dog.next_due is not None
        assert clock() < dog.next_due <= hold.deadline


# -- whether it is renewed -------------------------------------------------------------------------


def test_a_living_holder_wants_renewal(backend: UnitBackend) -> None:
    assert wants_renewal(make_hold(backend, "a"), backend.clock())


def test_who_does_not_want_it_is_not_renewed(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    assert not wants_renewal(make_hold(backend, "a", renewing=False), backend.clock())
    assert caplog.records == []


def test_a_holder_that_has_ended_is_not_renewed_and_that_is_said_once(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    hold = in_thread(lambda: make_hold(backend, "a" * 1000))
    for _ in range(3):
        assert not wants_renewal(hold, backend.clock())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "has ended" in record.getMessage()
    assert "adopt" in record.getMessage()
    assert backend.alias in record.getMessage()
    assert len(record.getMessage()) < 500


def test_a_holder_that_was_adopted_in_time_is_renewed(backend: UnitBackend) -> None:
    hold = in_thread(lambda: make_hold(backend, "a"))
    hold.adopt()
    assert wants_renewal(hold, backend.clock())


def test_a_task_is_a_living_holder_until_it_is_done(backend: UnitBackend) -> None:
    async def take() -> Hold:
        hold = make_hold(backend, "a")
        assert wants_renewal(hold, backend.clock())
        await asyncio.sleep(0)
        assert in_thread(lambda: wants_renewal(hold, backend.clock()))
        return hold

    async def main() -> None:
        task = asyncio.create_task(take())
        hold = await task
        assert not wants_renewal(hold, backend.clock())

    asyncio.run(main())


def test_nothing_is_renewed_past_max_hold(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(clock=clock) as backend:
        hold = make_hold(backend, "a", max_hold=60.0)
        clock.advance(59.9)
        assert wants_renewal(hold, clock())
        clock.advance(0.1)
        assert not wants_renewal(hold, clock())
        assert not hold.renewing
        assert "MAX_HOLD = 60 s" in caplog.text


def test_what_stands_in_an_open_transaction_waits_for_its_end(backend: UnitBackend) -> None:
    transaction = Transaction()
    hold = make_hold(backend, "a", bound=transaction)
    assert not wants_renewal(hold, backend.clock())
    assert hold.renewing, "only put off"
    transaction.is_open = False
    assert wants_renewal(hold, backend.clock())


def test_many_holds_are_not_swept_for_a_few_times(backend: UnitBackend) -> None:
    schedule = Schedule()
    kept = [make_hold(backend, f"kept {number}") for number in range(8 * LEAST)]
    for hold in kept:
        schedule.add(hold, 1.0)
    schedule.sweep()
    assert schedule._bound == 2 * LEAST


def test_after_a_peak_it_sweeps_early_again(backend: UnitBackend) -> None:
    schedule = Schedule()
    kept = [make_hold(backend, f"kept {number}") for number in range(2 * LEAST)]
    for due, hold in enumerate(kept):
        schedule.add(hold, float(due))
    assert schedule.is_crowded()
    schedule.sweep()
    assert schedule._bound == 4 * LEAST
    for hold in kept:
        hold.move(State.ACTIVE, State.RELEASED)
    schedule.trim()
    assert (len(schedule), schedule._bound) == (0, LEAST)
