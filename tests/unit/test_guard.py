"""Blocks: which error wins, what an interruption leaves, and the transaction inside."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Any

import pytest

from django_distlock import (
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotAcquiredError,
    lock,
    lock_all,
)
from django_distlock.core.flow import Call, Flow
from django_distlock.signals import Tell, lock_acquired

from .tools import Down, UnitBackend, drain, eventually, in_thread, without_gc


def sync_block(backend: UnitBackend, body: Any) -> Lease:
    """Run ``body`` in a block, in synchronous code."""
    with lock("a", using=backend.alias) as lease:
        body(lease)
    return lease


def async_block(backend: UnitBackend, body: Any) -> Lease:
    """Run ``body`` in a block, in asynchronous code."""

    async def main() -> Lease:
        async with lock("a", using=backend.alias) as lease:
            body(lease)
        return lease

    return asyncio.run(main())


both = pytest.mark.parametrize("block", [sync_block, async_block])


def force(backend: UnitBackend) -> Any:
    """Return a body that loses the lease."""
    return lambda lease: backend.force_release("a")


def fail(*before: Any) -> Any:
    """Return a body that does something and fails."""

    def body(lease: Lease) -> None:
        for each in before:
            each(lease)
        raise KeyError("the body's")

    return body


@both
def test_a_block_holds_and_frees(block: Any, backend: UnitBackend) -> None:
    seen = []
    lease = block(backend, lambda lease: seen.append(backend.holds("a")))
    assert seen == [True]
    assert not backend.holds("a")
    assert lease.remaining() == 0


@both
def test_the_bodys_error_goes_on(block: Any, backend: UnitBackend) -> None:
    with pytest.raises(KeyError, match="the body's"):
        block(backend, fail())
    assert not backend.holds("a")


@both
def test_a_lost_lease_raises(block: Any, backend: UnitBackend) -> None:
    with pytest.raises(LeaseLostError, match="another holder") as caught:
        block(backend, force(backend))
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)


@both
def test_the_bodys_error_wins_over_a_lost_lease(
    block: Any, backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyError):
        block(backend, fail(force(backend)))
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "expired or was forced" in record.getMessage()


@both
def test_a_failing_release_raises_and_is_done_later(block: Any, backend: UnitBackend) -> None:
    with pytest.raises(LockBackendError):
        block(backend, lambda lease: backend.before["release"].append(Down("x")))
    assert eventually(lambda: not backend.holds("a"))


@both
def test_the_bodys_error_wins_over_a_failing_release(
    block: Any, backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyError):
        block(backend, fail(lambda lease: backend.before["release"].append(Down("x"))))
    assert "Lock store error while releasing" in caplog.text
    assert eventually(lambda: not backend.holds("a"))


@both
def test_the_body_never_runs_without_the_lock(block: Any, backend: UnitBackend) -> None:
    held = in_thread(lock("a", using=backend.alias).acquire)
    backend.before["try_acquire"].append(Down("x"))
    with pytest.raises(LockBackendError):
        block(backend, lambda lease: pytest.fail("ran without the lock"))
    assert held is not None
    held.release()


ENDINGS = ["nothing", "lost", "down", "body"]


def body_for(ending: str, backend: UnitBackend) -> Any:
    """Return a body after which a block ends in the way named."""
    return {
        "nothing": lambda lease: None,
        "lost": force(backend),
        "down": lambda lease: backend.before["release"].append(Down("x")),
        "body": fail(),
    }[ending]


class Local:
    """What a caller has in a local variable: it has to go when the caller has ended."""


OURS = (LeaseLostError, LockBackendError, KeyError)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_block_that_ended_keeps_nothing_alive(backend: UnitBackend, ending: str) -> None:
    # An error that stays in a frame of ours keeps the frames of the callers, and their leases.
    def caller() -> weakref.ref[Local]:
        local = Local()
        with contextlib.suppress(*OURS):
            sync_block(backend, body_for(ending, backend))
        return weakref.ref(local)

    with without_gc():
        seen = caller()
        drain(backend)
        assert seen() is None


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_async_block_that_ended_keeps_nothing_alive(backend: UnitBackend, ending: str) -> None:
    async def caller() -> weakref.ref[Local]:
        local = Local()
        body = body_for(ending, backend)
        with contextlib.suppress(*OURS):
            async with lock("a", using=backend.alias) as lease:
                body(lease)
        return weakref.ref(local)

    async def main() -> Local | None:
        with without_gc():
            seen = await caller()
            await asyncio.sleep(0.01)
            drain(backend)
            return seen()

    assert asyncio.run(main()) is None


def test_cancel_on_lost_needs_a_task(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, cancel_on_lost=True)
    with pytest.raises(InvalidLockError, match="async with") as caught, mine:
        pytest.fail("cannot be cancelled")
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert backend.calls == []


def test_cancel_on_lost_of_a_group_needs_a_task(backend: UnitBackend) -> None:
    with (
        pytest.raises(InvalidLockError, match="async with"),
        lock_all("a", "b", using=backend.alias, cancel_on_lost=True),
    ):
        pytest.fail("cannot be cancelled")
    member = lock("a", using=backend.alias, cancel_on_lost=True)
    with pytest.raises(InvalidLockError, match="async with"), lock_all(member):
        pytest.fail("cannot be cancelled")
    assert backend.calls == []


# -- interrupted -------------------------------------------------------------------------------


def obtaining(backend: UnitBackend) -> Flow[Lease]:
    """Return the flow by which a block acquires."""
    return lock("a", using=backend.alias, wait=60)._obtain(60)


def test_a_flow_dropped_while_it_is_told_of_the_grant_frees_it(backend: UnitBackend) -> None:
    def receive(**given: Any) -> None:
        pass

    lock_acquired.connect(receive)
    try:
        flow = obtaining(backend)
        step = next(flow)
        while not isinstance(step, Tell):
            step = flow.send(step.do())
        assert backend.holds("a")
        flow.close()  # the coroutine was thrown away: a generator may not go on after this
    finally:
        lock_acquired.disconnect(receive)
    assert eventually(lambda: not backend.holds("a"))


def test_a_group_that_is_thrown_away_at_its_end_is_released_in_the_background(
    backend: UnitBackend,
) -> None:
    group = lock_all("a", "b", "c", using=backend.alias)
    got = group.acquire()
    assert got is not None
    flow = group._leave(got, None)
    step = next(flow)
    while not (isinstance(step, Call) and step.verb == "release"):
        step = flow.send(step.do())
    flow.close()
    assert eventually(lambda: not any(map(backend.holds, "abc")))


@pytest.mark.parametrize("end", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interruption_of_a_group_at_its_end_frees_all(
    backend: UnitBackend, end: type[BaseException]
) -> None:
    group = lock_all("a", "b", "c", using=backend.alias)
    got = group.acquire()
    assert got is not None
    flow = group._leave(got, None)
    step = next(flow)
    while not (isinstance(step, Call) and step.verb == "release"):
        step = flow.send(step.do())
    steps = [flow.throw(end())]

    def go_on() -> None:
        while True:
            steps.append(flow.send(steps[-1].do()))

    with pytest.raises(end):
        go_on()
    assert eventually(lambda: not any(map(backend.holds, "abc")))


# -- transactions --------------------------------------------------------------------------------


def test_contention_around_a_transaction_opens_none(backend: UnitBackend) -> None:
    held = in_thread(lock("a", using=backend.alias).acquire)
    with (
        pytest.raises(LockNotAcquiredError),
        lock("a", using=backend.alias, wait=0).atomic(using="no such database"),
    ):
        pytest.fail("two holders")
    assert held is not None
    held.release()


def test_a_database_that_does_not_exist_frees_the_lock(backend: UnitBackend) -> None:
    with pytest.raises(Exception, match="no such database"):
        lock("a", using=backend.alias).atomic(using="no such database").__enter__()
    assert not backend.holds("a")
