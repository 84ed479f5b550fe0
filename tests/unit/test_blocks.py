"""`with` blocks: one Lock object used by many at once, and who is asking."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from django_distlock import (
    AlreadyHeldError,
    Lease,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    lock,
)
from django_distlock.core import blocks, registry
from django_distlock.core.blocks import forget, innermost, push
from django_distlock.core.registry import party

from .tools import LIMIT, UnitBackend, in_thread

MANY = 8
SHARED = lock("shared by many", using="dummy")  # the dummy lets all of them in at once


@pytest.fixture(autouse=True)
def _nothing_stays_entered() -> Iterator[None]:
    yield
    left = dict(blocks._entered)
    blocks._entered.clear()
    assert left == {}


# -- one Lock object, many blocks ------------------------------------------------------------------


def test_eight_threads_in_blocks_of_one_lock_leave_their_own() -> None:
    inside = threading.Barrier(MANY, timeout=LIMIT)
    turns = [threading.Event() for _ in range(MANY)]

    def work(number: int) -> tuple[Lease, bool, bool]:
        with SHARED as lease:
            inside.wait()
            assert turns[number].wait(LIMIT)  # they leave in another order than they entered
            held = lease.remaining() > 0
        turns[(number - 1) % MANY].set()
        return lease, held, lease.remaining() == 0

    with ThreadPoolExecutor(MANY) as pool:
        futures = [pool.submit(work, number) for number in range(MANY)]
        turns[MANY - 1].set()
        results = [future.result(LIMIT) for future in futures]
    assert all(held and released for _, held, released in results)
    assert len({lease.fencing_token for lease, _, _ in results}) == MANY


def test_eight_tasks_in_blocks_of_one_lock_leave_their_own() -> None:
    async def main() -> None:
        turns = [asyncio.Event() for _ in range(MANY)]
        inside = 0

        async def work(number: int) -> int:
            nonlocal inside
            async with SHARED as lease:
                inside += 1
                if inside == MANY:
                    turns[MANY - 1].set()
                await turns[number].wait()
                lease.check()
            turns[(number - 1) % MANY].set()
            assert lease.remaining() == 0
            return lease.fencing_token

        tokens = await asyncio.wait_for(asyncio.gather(*map(work, range(MANY))), LIMIT)
        assert len(set(tokens)) == MANY

    asyncio.run(main())


def test_blocks_nest_as_a_stack(backend: UnitBackend) -> None:
    nested = lock("a", using=backend.alias, reentrant=True)
    with nested as outer:
        with nested as middle:
            with nested as inner:
                assert {outer.fencing_token} == {middle.fencing_token, inner.fencing_token}
            assert inner.remaining() == 0
            assert middle.remaining() > 0
        assert backend.holds("a")
    assert not backend.holds("a")


def test_pushed_and_popped_by_lock_and_party() -> None:
    one, other = lock("a"), lock("a")
    push(one, 1)
    push(other, 2)
    push(one, 3)
    for lock_, got in ((one, 3), (other, 2), (one, 1)):
        assert innermost(lock_) == got
        forget(lock_, got)
    assert innermost(one) is None


def test_a_block_may_end_on_another_thread(backend: UnitBackend) -> None:
    # As the body of a streaming response does.
    def stream() -> Iterator[int]:
        with lock("a", using=backend.alias):
            yield 1
            yield 2

    chunks = stream()
    assert in_thread(lambda: next(chunks)) == 1
    assert backend.holds("a")
    assert list(chunks) == [2]
    assert not backend.holds("a")


def test_blocks_of_one_chain_of_calls_may_end_on_another_thread() -> None:
    # Two streaming responses at once, under one Lock: each chunk may come from another thread,
    # but the chain of calls is carried along.
    one, other = contextvars.Context(), contextvars.Context()
    first = in_thread(lambda: one.run(SHARED.__enter__))
    second = in_thread(lambda: other.run(SHARED.__enter__))
    one.run(SHARED.__exit__, None, None, None)
    assert (first.remaining() == 0, second.remaining() == 0) == (True, False)
    other.run(SHARED.__exit__, None, None, None)
    assert second.remaining() == 0


def test_leaving_what_nobody_has_entered_is_an_error() -> None:
    with pytest.raises(LockNotHeldError, match="has not entered") as caught:
        lock("a", using="dummy").__exit__(None, None, None)
    assert (caught.value.name, caught.value.alias) == ("a", "dummy")


def test_leaving_what_two_others_have_entered_is_an_error_and_frees_neither() -> None:
    leases = [in_thread(SHARED.__enter__) for _ in range(2)]
    with pytest.raises(LockNotHeldError, match="has not entered"):
        SHARED.__exit__(None, None, None)
    assert all(lease.remaining() > 0 for lease in leases)
    blocks._entered.pop(id(SHARED))


def test_the_bodys_error_wins_also_when_the_block_cannot_be_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave() -> None:
        await SHARED.__aexit__(ValueError, ValueError("the body's"), None)

    leases = [in_thread(SHARED.__enter__) for _ in range(2)]
    try:
        # Returning means that the body's error goes on.
        SHARED.__exit__(ValueError, ValueError("the body's"), None)
        asyncio.run(leave())
    finally:
        blocks._entered.pop(id(SHARED))
        del leases
    assert caplog.text.count("has not entered") == 2


# -- who is asking ---------------------------------------------------------------------------------


def test_a_thread_is_the_same_party_at_every_call() -> None:
    assert party() == party()
    assert party()[0] is threading.current_thread()


def test_two_threads_are_two_parties_of_two_flows() -> None:
    (one, flow, _), (other, another, _) = in_thread(party), in_thread(party)
    assert one is not other
    assert len({flow, another, party()[1]}) == 3


def test_a_task_is_a_party_and_its_child_another_of_the_same_chain() -> None:
    async def main() -> None:
        mine = party()
        assert mine[0] is asyncio.current_task()
        child = asyncio.create_task(asyncio.sleep(0, None))
        theirs = await asyncio.create_task(ask())
        await child
        assert theirs[0] is not mine[0]
        # Not the same flow, else their synchronous parts on one thread would be one holder.
        assert theirs[1] != mine[1]
        assert theirs[2] == mine[2]

    async def ask() -> tuple[registry.Party, int, int]:
        return party()

    asyncio.run(main())


def test_tasks_that_begin_before_any_lock_call_are_of_different_flows() -> None:
    async def ask() -> int:
        return party()[1]

    async def main() -> None:
        assert len(set(await asyncio.gather(*(ask() for _ in range(MANY))))) == MANY

    contextvars.Context().run(asyncio.run, main())


def test_a_child_task_does_not_reenter(backend: UnitBackend) -> None:
    nested = lock("a", using=backend.alias, reentrant=True, wait=0)

    async def child() -> Lease | None:
        return await nested.aacquire()

    async def main() -> None:
        async with nested:
            again = await nested.aacquire()
            assert again is not None
            assert await asyncio.create_task(child()) is None
            await again.arelease()

    asyncio.run(main())


def test_two_tasks_whose_calls_share_a_thread_exclude_each_other(backend: UnitBackend) -> None:
    reentrant = lock("a", using=backend.alias, reentrant=True, wait=0)
    threads = set()

    def take() -> Lease | None:
        threads.add(threading.get_ident())
        return reentrant.acquire()

    async def work() -> list[Lease | None]:
        async with ThreadSensitiveContextOnce():
            first = await sync_to_async(take)()
            second = await sync_to_async(take)()  # the same chain of calls: nests
            return [first, second]

    async def main() -> None:
        one, other = await asyncio.gather(work(), work())
        got = [leases for leases in (one, other) if leases != [None, None]]
        assert len(got) == 1, "both were granted, or none"
        assert all(got[0])
        for lease in got[0]:
            assert lease is not None
            await lease.arelease()

    contextvars.Context().run(asyncio.run, main())
    assert len(threads) == 1
    assert not backend.holds("a")


class ThreadSensitiveContextOnce(ThreadSensitiveContext):
    """Enters nothing: both tasks stay on the one thread that all of asgiref's calls share."""

    async def __aenter__(self) -> ThreadSensitiveContextOnce:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


def test_waiting_for_a_relative_says_so(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, wait=0.05)

    def inner() -> None:
        with mine:
            pytest.fail("two holders")

    async def main() -> None:
        async with mine:
            with pytest.raises(LockTimeoutError, match="same chain of calls"):
                await sync_to_async(inner)()

    asyncio.run(main())


def test_async_code_called_by_sync_code_is_another_party(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, wait=0)

    async def inner() -> None:
        async with mine:
            pytest.fail("two holders")

    with mine, pytest.raises(LockNotAcquiredError, match="same chain of calls"):
        async_to_sync(inner)()


def test_the_same_task_again_is_an_error(backend: UnitBackend) -> None:
    async def main() -> None:
        async with lock("a", using=backend.alias):
            with pytest.raises(AlreadyHeldError):
                async with lock("a", using=backend.alias):
                    pytest.fail("taken twice")

    asyncio.run(main())


def test_another_context_of_the_same_thread_is_another_holder(backend: UnitBackend) -> None:
    reentrant = lock("a", using=backend.alias, reentrant=True, wait=0)
    fresh = contextvars.Context()
    lease = fresh.run(reentrant.acquire)
    assert lease is not None
    assert contextvars.Context().run(reentrant.acquire) is None
    again = fresh.run(reentrant.acquire)
    assert again is not None
    for each in (again, lease):
        each.release()
