"""The two drivers: both modes do the same, and a cancellation waits for the store."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pytest

from django_distlock import Lease, lock
from django_distlock.backends.flows import FlowBackend, Operation
from django_distlock.conf import AliasConf
from django_distlock.core import flow
from django_distlock.core.backoff import delays
from django_distlock.core.clock import GRACE, STILL
from django_distlock.core.flow import Call, Flow, Granted, Pause, arun, carried, run
from django_distlock.core.loops import finish
from django_distlock.core.values import Claim, Refusal
from django_distlock.exceptions import LockBackendError, LockError, UnsupportedOperationError

from .tools import (
    LIMIT,
    Conflict,
    Down,
    Gate,
    UnitBackend,
    VirtualClock,
    claim_of,
    eventually,
    in_thread,
    opened,
    without_gc,
)


@dataclass(frozen=True)
class Say:
    """A step that answers with a value or raises it."""

    interruptible: ClassVar[bool] = False

    value: Any

    def do(self) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    async def ado(self) -> Any:
        await asyncio.sleep(0)
        return self.do()


def both(make: Callable[[], Flow[Any]]) -> list[Any]:
    """Return what a flow ends with, driven in either mode."""
    ends: list[Any] = []
    for drive in (run, lambda steps: asyncio.run(arun(steps))):
        try:
            ends.append(drive(make()))
        except (LockError, RuntimeError, ValueError) as error:
            ends.append((type(error), str(error)))
    return ends


def test_steps_are_answered_in_turn() -> None:
    def steps() -> Flow[list[int]]:
        return [(yield Say(1)), (yield Say(2))]

    assert both(steps) == [[1, 2], [1, 2]]


def test_a_flow_without_steps_returns() -> None:
    def steps() -> Flow[str]:
        yield from ()
        return "done"

    assert both(steps) == ["done", "done"]


def test_what_a_step_raises_is_raised_in_the_flow() -> None:
    def steps() -> Flow[str]:
        try:
            yield Say(ValueError("one"))
        except ValueError as error:
            got: str = yield Say(f"after {error}")
            return got
        raise AssertionError

    assert both(steps) == ["after one", "after one"]


def test_what_the_flow_does_not_catch_is_raised() -> None:
    def steps() -> Flow[None]:
        yield Say(ValueError("one"))

    assert both(steps) == [(ValueError, "one")] * 2


SCENES: dict[str, Callable[[UnitBackend], None]] = {
    "free": lambda b: None,
    "held": lambda b: hold_by_another(b),
    "down": lambda b: b.before["try_acquire"].append(Down("x")),
    "answer lost": lambda b: b.after["try_acquire"].append(Down("x")),
    "conflicts": lambda b: b.before["try_acquire"].extend([Conflict("x")] * 2),
    "conflicts without end": lambda b: b.before["try_acquire"].extend([Conflict("x")] * 50),
    "not declared": lambda b: b.before["try_acquire"].append(ValueError("x")),
    "not declared, answer lost": lambda b: b.after["try_acquire"].append(ValueError("x")),
}


def hold_by_another(backend: UnitBackend) -> None:
    backend.try_acquire(claim_of(backend, "n", owner="another"), 1.0)
    backend.calls.clear()


@pytest.mark.parametrize("scene", SCENES)
def test_acquiring_makes_the_same_calls_in_both_modes(scene: str) -> None:
    traces = []
    for mode in (run, lambda steps: asyncio.run(arun(steps))):
        with opened(clock=VirtualClock()) as backend:
            SCENES[scene](backend)
            abandoned: list[Claim] = []
            steps = flow.acquire(
                backend,
                claim_of(backend, "n"),
                until=backend.clock(),
                clock=backend.clock,
                delays=delays(),
                abandon=abandoned.append,
            )
            try:
                end: Any = mode(steps)
            except (LockError, ValueError) as error:
                end = (type(error), str(error).split(" [")[0])
            kind = type(end) if isinstance(end, Granted | Refusal) else end
            traces.append((kind, backend.calls, len(abandoned), backend.holds("n")))
    assert traces[0] == traces[1]


# -- an operation of several requests --------------------------------------------------------------


class Several(FlowBackend):
    """Notes, for each request of an operation, the seconds that are left for it."""

    answer_error = OSError

    def carry(self, request: float, ends: float) -> Flow[float]:
        yield Call(self, "stand_still", (request,))
        return ends - time.monotonic()

    def stand_still(self, seconds: float) -> None:
        time.sleep(seconds)

    def operation(self, *seconds: float) -> Operation[list[float]]:
        left = []
        for each in seconds:
            left.append((yield each))
        return left


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_requests_after_a_standstill_have_time_for_their_answers(mode: str) -> None:
    """Once: a store that is always late gets no more."""
    backend = Several("several", AliasConf("tests"))
    work = partial(backend.operation, 3 * STILL, 0.0, GRACE + STILL, 0.0)
    left = backend.do(work, STILL) if mode == "sync" else asyncio.run(backend.ado(work, STILL))
    assert left[0] < -STILL
    assert left[1] > 0
    assert left[3] < 0


@pytest.mark.parametrize(
    "error", [KeyError("x"), TypeError("x"), StopIteration(), RecursionError()]
)
def test_an_answer_of_another_form_is_an_error_of_the_store(error: Exception) -> None:
    def reading() -> Operation[None]:
        yield "a request"
        raise error

    def answered(request: object) -> Flow[None]:
        yield Say(None)

    def steps() -> Flow[None]:
        return carried(reading(), answered, OSError)

    for drive in (run, lambda flow: asyncio.run(arun(flow))):
        with pytest.raises(OSError, match="another form") as caught:
            drive(steps())
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize("asked", [False, True])
def test_what_was_no_answer_is_raised_as_it_is(asked: bool) -> None:
    """A mistake in a request, and what a signal's handler raises while an answer is awaited."""

    def operation() -> Operation[None]:
        if not asked:
            raise ValueError("of ours")
        yield "a request"

    def failing(request: object) -> Flow[None]:
        yield Say(ValueError("of ours"))

    assert both(lambda: carried(operation(), failing, OSError)) == [(ValueError, "of ours")] * 2


# -- a store call under way ------------------------------------------------------------------------


class Under:
    """A store call under way: it ends when told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.done = False
        self.error = error

    async def __call__(self) -> str:
        self.begun.set()
        await self.go.wait()
        self.done = True
        if self.error is not None:
            raise self.error
        return "answer"


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("error", [None, Down("late")])
def test_a_cancellation_goes_on_only_after_the_call_under_way(
    times: int, error: Exception | None
) -> None:
    async def main() -> None:
        work = Under(error)
        task = asyncio.create_task(finish(work()))
        await work.begun.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done(), "the cancellation overtook the call"
        work.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.done
        assert task.cancelling() == times

    asyncio.run(main())


def test_finish_returns_and_raises_what_the_call_does() -> None:
    async def main() -> None:
        work = Under()
        work.go.set()
        assert await finish(work()) == "answer"
        failing = Under(Down("now"))
        failing.go.set()
        with pytest.raises(Down, match="now"):
            await finish(failing())

    asyncio.run(main())


def test_a_call_that_was_cancelled_itself_is_a_cancellation() -> None:
    async def main() -> None:
        async def work() -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await finish(work())

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 3])
def test_a_task_cancelled_while_the_store_grants_leaves_nothing(times: int) -> None:
    async def main(backend: UnitBackend) -> None:
        gate = backend.gates["try_acquire"] = Gate()
        task = asyncio.create_task(arun(acquiring(backend)))
        assert await asyncio.to_thread(gate.entered.wait, LIMIT)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        assert backend.count("release") == 0, "released before the grant could come"
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert backend.calls == [("try_acquire", "n"), ("release", "n")]
        assert not backend.holds("n")

    with opened() as backend:
        asyncio.run(main(backend))


def acquiring(
    backend: UnitBackend, *, wait: float = 60.0, abandon: Callable[[Claim], None] | None = None
) -> Flow[Granted | Refusal]:
    return flow.acquire(
        backend,
        claim_of(backend, "n"),
        until=backend.clock() + wait,
        clock=backend.clock,
        delays=delays(),
        abandon=abandon or (lambda claim: pytest.fail("nothing had to be abandoned")),
    )


def test_a_pause_is_cancelled_at_once() -> None:
    async def main() -> None:
        def steps() -> Flow[None]:
            yield Pause(backend, "pause", (claim_of(backend, "n"), 60.0))

        task = asyncio.create_task(arun(steps()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), LIMIT)

    with opened() as backend:
        asyncio.run(main())


def test_the_end_of_the_loop_waits_for_the_call_under_way() -> None:
    # `asyncio.run` cancels every task when main() has ended: not only ours, also the one that it
    # waits for. The thread in the store grants all the same.
    with opened() as backend:
        gate = backend.gates["try_acquire"] = Gate()

        async def main() -> asyncio.Task[Any]:
            task = asyncio.create_task(arun(acquiring(backend)))
            await asyncio.to_thread(gate.entered.wait, LIMIT)
            # The grant comes when we withdraw, or a little later: not before the cancellation.
            threading.Timer(0.3, gate.open.set).start()
            return task

        release = backend.release

        def released(claim: Claim) -> bool:
            answer = release(claim)
            gate.open.set()
            return answer

        backend.release = released  # type: ignore[method-assign]
        task = asyncio.run(main())
        assert task.cancelled()
        assert eventually(lambda: not backend.holds("n")), "granted after it was released"


def test_a_coroutine_that_is_thrown_away_closes_its_flow() -> None:
    closed: list[bool] = []

    def steps() -> Flow[None]:
        try:
            yield Pause(backend, "pause", (claim_of(backend, "n"), 60.0))
        except GeneratorExit:
            closed.append(True)
            raise

    async def main() -> None:
        coroutine = arun(steps())
        coroutine.send(None)
        coroutine.close()

    with opened() as backend:
        asyncio.run(main())
    assert closed == [True]


# -- references ------------------------------------------------------------------------------------


class Local:
    """Something that a caller has in a local variable, a lease for example."""


def failing_step(backend: UnitBackend) -> Flow[None]:
    backend.before["renew"].append(Down("x"))
    yield Call(backend, "renew", (claim_of(backend, "n"),))


def test_a_failed_run_keeps_nothing_of_its_caller_alive(backend: UnitBackend) -> None:
    # A frame that refers to the error which refers to the frame: the callers' leases would stay
    # until the garbage collector comes, and be renewed until then.
    def caller() -> weakref.ref[Local]:
        local = Local()
        with pytest.raises(LockBackendError):
            run(failing_step(backend))
        return weakref.ref(local)

    with without_gc():
        assert caller()() is None


def test_a_failed_arun_keeps_nothing_of_its_caller_alive(backend: UnitBackend) -> None:
    async def caller() -> weakref.ref[Local]:
        local = Local()
        with pytest.raises(LockBackendError):
            await arun(failing_step(backend))
        return weakref.ref(local)

    async def main() -> Local | None:
        with without_gc():
            seen = await caller()
            await asyncio.sleep(0.01)
            return seen()

    assert asyncio.run(main()) is None
    gc.collect()


# -- loops that are not there, or must not stop ----------------------------------------------------


def test_without_a_loop_of_asyncio_it_says_so(backend: UnitBackend) -> None:
    """As under trio, whose own message names neither us nor a way out."""
    mine = lock("a", using=backend.alias)
    with pytest.raises(UnsupportedOperationError, match="asyncio"):
        mine.aacquire().send(None)
    assert backend.calls == []


def test_a_synchronous_wait_does_not_stop_the_loop(
    backend: UnitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a deadlock where the holder is a task of the same loop."""
    lease = in_thread(lock("a", using=backend.alias).acquire)
    assert lease is not None

    async def main(wait: float) -> Lease | None:
        return lock("a", using=backend.alias).acquire(wait=wait)

    with pytest.raises(UnsupportedOperationError, match="async with") as caught:
        asyncio.run(main(LIMIT))
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert asyncio.run(main(0)) is None  # which does not wait
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    assert asyncio.run(main(0.01)) is None
    lease.release()

    async def free() -> bool:
        with lock("a", using=backend.alias, wait=LIMIT):
            return backend.holds("a")

    assert asyncio.run(free())
