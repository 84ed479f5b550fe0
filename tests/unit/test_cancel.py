"""`cancel_on_lost`: the body is cancelled when its lease is lost, as `asyncio.timeout` does it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from django_distlock import Lease, LeaseLostError, Lock, lock, lock_all
from django_distlock.core import blocks
from django_distlock.core.blocks import CancelScope
from django_distlock.signals import lock_acquired

from .tools import LIMIT, Down, UnitBackend, eventually, make_hold


@pytest.fixture(autouse=True)
def _nothing_stays_entered() -> Iterator[None]:
    yield
    left = dict(blocks._entered)
    blocks._entered.clear()
    assert left == {}


def watched(backend: UnitBackend, name: str = "a", **options: Any) -> Lock:
    """Return a lock whose loss cancels."""
    made: Lock = lock(name, using=backend.alias, cancel_on_lost=True, **options)
    return made


async def lost(body: Coroutine[Any, Any, None]) -> LeaseLostError:
    """Return the error by which a body is told of its loss; nothing of a cancellation is left."""
    with pytest.raises(LeaseLostError) as caught:
        await body
    assert me().cancelling() == 0
    await asyncio.sleep(0)
    return caught.value


async def for_ever() -> None:
    """Wait until cancelled."""
    await asyncio.sleep(3600)


def me() -> asyncio.Task[object]:
    """Return the current task."""
    task: asyncio.Task[object] | None = asyncio.current_task()
    assert task is not None
    return task


def test_a_lost_lease_cancels_the_body_and_is_told(backend: UnitBackend) -> None:
    seen: list[BaseException] = []

    async def body() -> None:
        async with watched(backend) as lease:
            lease._hold.lose("gone")
            try:
                await for_ever()
            except BaseException as error:
                seen.append(error)
                raise

    error = asyncio.run(lost(body()))
    assert [type(each) for each in seen] == [asyncio.CancelledError]
    assert isinstance(error.__cause__, asyncio.CancelledError)
    assert "gone" in str(error)


def test_the_watchdog_cancels_too(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend, ttl=0.3):
            backend.drop("a")
            await asyncio.wait_for(for_ever(), LIMIT)

    assert "not ours any more" in str(asyncio.run(lost(body())))


def test_a_hung_store_cancels_at_the_deadline(backend: UnitBackend) -> None:
    async def body() -> None:
        backend.before["renew"] += [Down("x")] * 1000
        async with watched(backend, ttl=0.2):
            await asyncio.wait_for(for_ever(), LIMIT)

    assert "ran out" in str(asyncio.run(lost(body())))


def test_without_a_loss_nothing_is_cancelled(backend: UnitBackend) -> None:
    async def main() -> None:
        async with watched(backend) as lease:
            await asyncio.sleep(0)
        assert me().cancelling() == 0
        lease._hold.lose("too late")
        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_foreign_cancellation_goes_on(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend):
            await for_ever()

    async def main() -> None:
        task = asyncio.create_task(body())
        assert await asyncio.to_thread(eventually, lambda: backend.holds("a"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not backend.holds("a")

    asyncio.run(main())


@pytest.mark.parametrize("first", ["loss", "foreign"])
def test_when_both_come_the_foreign_cancellation_wins(backend: UnitBackend, first: str) -> None:
    leases: list[Lease] = []
    counts: list[int] = []

    async def body() -> None:
        try:
            async with watched(backend) as lease:
                leases.append(lease)
                await for_ever()
        finally:
            counts.append(me().cancelling())

    async def main() -> None:
        task = asyncio.create_task(body())
        assert await asyncio.to_thread(eventually, lambda: leases)
        if first == "loss":
            leases[0]._hold.lose("gone")
        task.cancel()
        leases[0]._hold.lose("gone")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert counts == [1], "only the foreign one is left"


def test_a_task_group_and_a_timeout_around_it_keep_working(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend) as lease:
            backend.drop("a")
            lease._hold.lose("gone")
            await for_ever()

    async def within_timeout() -> None:
        async with asyncio.timeout(LIMIT):
            await body()

    async def too_long() -> None:
        async with asyncio.timeout(0.02), watched(backend):
            await for_ever()

    async def beside_others() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(body())
            tasks.create_task(for_ever())

    async def main() -> None:
        await lost(within_timeout())
        with pytest.raises(TimeoutError):
            await too_long()
        assert me().cancelling() == 0
        with pytest.raises(ExceptionGroup) as caught:
            await beside_others()
        assert caught.group_contains(LeaseLostError)

    asyncio.run(main())


def test_the_bodys_own_error_wins(backend: UnitBackend) -> None:
    async def main() -> None:
        async def body() -> None:
            async with watched(backend) as lease:
                lease._hold.lose("gone")
                try:
                    await for_ever()
                except asyncio.CancelledError:
                    raise KeyError("the body's") from None

        with pytest.raises(KeyError):
            await body()
        assert me().cancelling() == 0

    asyncio.run(main())


def test_a_body_that_swallows_the_cancellation_is_told_all_the_same(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend) as lease:
            lease._hold.lose("gone")
            with suppress(asyncio.CancelledError):
                await for_ever()

    asyncio.run(lost(body()))


def test_a_body_that_gave_its_lost_lease_up_is_told_all_the_same(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend) as lease:
            lease._hold.lose("gone")
            with suppress(LeaseLostError):
                lease.release()
            await for_ever()

    asyncio.run(lost(body()))


def test_a_lease_lost_before_the_body_begins_cancels_it(backend: UnitBackend) -> None:
    # While receivers of `lock_acquired` are told, say.
    def receive(lease: Lease, **given: object) -> None:
        lease._hold.lose("gone already")

    async def body() -> None:
        async with watched(backend):
            async with asyncio.timeout(1.0):
                await for_ever()

    lock_acquired.connect(receive)
    try:
        assert "gone already" in str(asyncio.run(lost(body())))
    finally:
        lock_acquired.disconnect(receive)


def test_of_a_group_any_loss_cancels_once(backend: UnitBackend) -> None:
    group = lock_all("a", "b", "c", using=backend.alias, cancel_on_lost=True)

    async def body(numbers: list[int]) -> None:
        async with group as leases:
            for number in numbers:
                leases[number]._hold.lose("gone")
            await for_ever()

    async def main() -> None:
        for numbers in ([0], [2], [0, 1, 2]):
            await lost(body(numbers))
            for name in "abc":
                backend.drop(name)

    asyncio.run(main())


def test_nested_blocks_each_take_their_own_cancellation_back(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend, "outer") as outer, watched(backend, "inner") as inner:
            outer._hold.lose("gone")
            inner._hold.lose("gone")
            await for_ever()

    assert asyncio.run(lost(body())).name in ("outer", "inner")


def test_a_loss_of_the_outer_lease_only_ends_the_inner_block_as_cancelled(
    backend: UnitBackend,
) -> None:
    seen: list[type[BaseException]] = []

    async def body() -> None:
        async with watched(backend, "outer") as outer:
            try:
                async with watched(backend, "inner"):
                    outer._hold.lose("gone")
                    await for_ever()
            except BaseException as error:
                seen.append(type(error))
                raise

    assert asyncio.run(lost(body())).name == "outer"
    assert seen == [asyncio.CancelledError]
    assert not backend.holds("inner")


def test_a_nested_hold_that_is_lost_ends_both_blocks(backend: UnitBackend) -> None:
    mine = watched(backend, reentrant=True)
    seen: list[type[BaseException]] = []

    async def body() -> None:
        async with mine as lease:
            try:
                async with mine:
                    lease._hold.lose("gone")
                    await for_ever()
            except BaseException as error:
                seen.append(type(error))
                raise

    asyncio.run(lost(body()))
    assert seen[0] in (asyncio.CancelledError, LeaseLostError)


def test_a_long_lease_does_not_gather_the_scopes_of_its_blocks(backend: UnitBackend) -> None:
    async def main() -> None:
        mine = watched(backend, reentrant=True)
        async with mine as lease:
            before = len(lease._hold.on_lost)
            for _ in range(20):
                async with mine:
                    pass
            assert len(lease._hold.on_lost) == before

    asyncio.run(main())


def test_a_scope_whose_loop_is_closed_is_quiet(backend: UnitBackend) -> None:
    holds = []

    async def main() -> None:
        hold = make_hold(backend, "a")
        CancelScope(hold)
        holds.append(hold)

    asyncio.run(main())
    assert holds[0].lose("gone after the loop")


def test_a_loss_noticed_on_another_thread_wakes_the_loop(backend: UnitBackend) -> None:
    async def body() -> None:
        async with watched(backend) as lease:
            threading.Timer(0.02, lease._hold.lose, ["gone"]).start()
            await asyncio.wait_for(for_ever(), LIMIT)

    asyncio.run(lost(body()))
