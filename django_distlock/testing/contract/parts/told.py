"""5. A holder is told when its lease is lost, and knows its own deadline without the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .... import InvalidLockError, Lease, LeaseLostError, LockBackendError
from ....signals import lock_released
from ...runners import AsyncRunner, Cancelled, Runner, SyncRunner, until
from ...taps import Gate, failing, tap
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Told"]


@contextmanager
def _losses(name: str) -> Iterator[list[dict[str, Any]]]:
    """Collect what `lock_released` says of the losses of one lock."""
    heard: list[dict[str, Any]] = []

    def receiver(**facts: Any) -> None:
        if facts["name"] == name and facts["outcome"] == "lost":
            heard.append(facts)

    lock_released.connect(receiver)
    try:
        yield heard
    finally:
        lock_released.disconnect(receiver)


class Told(ContractBase):
    """The local deadline, the watchdog, and the news of a loss."""

    @applies_to_all
    async def test_the_deadline_counts_from_before_the_question(self, runner: Runner) -> None:
        """Count the lease from before the store was asked, by acquire and by renew."""
        a, backend = runner.actor(), self.backend()
        with tap(backend, "try_acquire", after=lambda: time.sleep(0.2)):
            lease = await a.take(self.lock(runner.name(), ttl=10, renew=False))
        assert 5 < lease.remaining() <= 10 - 0.2
        with tap(backend, "renew", after=lambda: time.sleep(0.2)):
            await a.renew(lease)
        assert 5 < lease.remaining() <= 10 - 0.2
        await a.release(lease)

    @applies_to_all
    async def test_an_answer_after_the_lease_is_no_grant(self, runner: Runner) -> None:
        """Refuse a grant that comes when its lease has ended already."""
        a = runner.actor()
        lock = self.lock(runner.name(), ttl=0.1, renew=False)
        with (
            tap(self.backend(), "try_acquire", after=lambda: time.sleep(0.2)),
            pytest.raises(LockBackendError),
        ):
            await a.acquire(lock, wait=0)

    async def test_a_renewal_starts_the_ttl_anew(self, runner: Runner) -> None:
        """Count the ttl from now on, the same or another one, here and in the store."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), ttl=5, renew=False)
        lease = await a.take(lock)
        await a.renew(lease, 15)
        assert 10 < lease.remaining() < 15
        assert lease.ttl == 15
        await a.renew(lease)
        assert 10 < lease.remaining() < 15
        await a.renew(lease, self.short)
        assert lease.remaining() < self.short
        await b.release(await b.take(lock, wait=self.waits_out(self.short)))
        assert lease.lost

    async def test_the_watchdog_renews(self, runner: Runner) -> None:
        """Keep a lease that is held for longer than its ttl."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), ttl=self.kept)
        lease = await a.take(lock)
        await asyncio.sleep(1.1 * self.kept)
        assert await b.is_refused(lock)
        lease.check()
        await a.release(lease)

    async def test_a_released_lease_is_not_renewed(self, runner: Runner) -> None:
        """Say no more of a lease that was released: neither renew it nor call it lost."""
        a = runner.actor()
        name = runner.name()
        lock = self.lock(name, ttl=self.kept)
        told: list[Lease] = []
        with _losses(name) as heard:
            lease = await a.take(lock)
            lease.on_lost(told.append)
            await a.release(lease)
            with tap(self.backend(), "renew") as one, tap(self.backend(), "renew_many") as many:
                await asyncio.sleep(self.kept / 2)  # the first renewal would be at a third
        assert (one.begun, many.begun, heard, told) == (0, 0, [], [])

    async def test_a_release_during_a_renewal(self, runner: Runner) -> None:
        """Free the lock for good when a renewal is under way, and call nothing lost."""
        a = runner.actor()
        name = runner.name()
        gate = Gate()
        told: list[Lease] = []
        with tap(self.backend(), "renew_many", before=gate) as calls:
            lease = await a.take(self.lock(name, ttl=self.kept))
            lease.on_lost(told.append)
            await until(gate.reached)
            await a.release(lease)
            gate.open()
            await calls.came()
        assert await a.call(self.backend(), "inspect", name) is None
        await a.release(await a.take(self.lock(name)))
        assert told == []

    async def test_the_deadline_needs_no_store(self, runner: Runner) -> None:
        """Lose the lease at its deadline when the store cannot be reached, and say so, once."""
        a = runner.actor()
        ttl = 0.3
        name = runner.name()
        lock = self.lock(name, ttl=ttl)
        told: list[Lease] = []
        with _losses(name) as heard:
            lease = await a.take(lock)
            lease.on_lost(told.append)
            with failing(self.backend(), "renew", "renew_many"):
                await until(lambda: heard and told, within=ttl + self.handoff)
                with pytest.raises(LeaseLostError):
                    lease.check()
                with pytest.raises(LeaseLostError):
                    await a.renew(lease)
                assert lease.lost
                assert lease.remaining() == 0
            with pytest.raises(LeaseLostError):
                await a.release(lease)
        assert [(each.name, self.token(each)) for each in told] == [(name, self.token(lease))]
        assert [facts["fencing_token"] for facts in heard] == [self.token(lease)]
        # What failed has left nothing behind that would hinder the next one's renewal.
        with tap(self.backend(), "renew_many") as calls:
            again = await a.take(self.lock(name, ttl=self.kept), wait=self.waits_out(ttl))
            await calls.came()
        await until(lambda: again.remaining() > 0.8 * self.kept)
        await a.release(again)

    async def test_a_passing_error_is_no_loss(self, runner: Runner) -> None:
        """Try again while the lease lasts when a renewal fails."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), ttl=3 * self.kept)
        lease = await a.take(lock)
        first = time.monotonic() + lease.remaining()
        with failing(self.backend(), "renew_many", times=2):
            await until(lambda: time.monotonic() + lease.remaining() > first + 0.1)
        lease.check()
        assert await b.is_refused(lock)
        await a.release(lease)

    @needs("force_releases")
    async def test_a_forced_release_is_reported(self, runner: Runner) -> None:
        """Tell the holder of a broken lock at the next renewal, long before its deadline."""
        a, b = runner.actor(), runner.actor()
        ttl = 2 * self.kept
        name = runner.name()
        lock = self.lock(name, ttl=ttl)
        told: list[Lease] = []
        with _losses(name) as heard:
            lease = await a.take(lock)
            lease.on_lost(told.append)
            await b.force(self.backend(), name, self.token(lease))
            await until(lambda: heard and told, within=0.9 * ttl)
        assert [(each.name, self.token(each)) for each in told] == [(name, self.token(lease))]
        assert [facts["alias"] for facts in heard] == [self.alias]
        assert lease.lost
        with pytest.raises(LeaseLostError):
            lease.check()
        with pytest.raises(LeaseLostError):
            await a.release(lease)

    @needs("force_releases")
    async def test_a_block_tells_of_the_loss(self, runner: Runner) -> None:
        """Raise at the end of a block whose lease was lost, but let the body's own error win."""
        a, b = runner.actor(), runner.actor()
        for error in (None, ValueError("of the body")):
            name = runner.name(str(error))
            lock = self.lock(name)
            await a.enter(lock)
            await b.force(self.backend(), name)
            if error is None:
                with pytest.raises(LeaseLostError):
                    await a.leave(lock)
            else:
                await a.leave(lock, error)
            await b.release(await b.take(lock))

    @needs("force_releases")
    async def test_a_lost_lease_cancels_the_body(self, tasks: AsyncRunner) -> None:
        """Cancel the body of `async with` when the lease is lost, and raise the loss instead."""
        a, b = tasks.actor(), tasks.actor()
        name = tasks.name()
        lock = self.lock(name, ttl=2 * self.kept, cancel_on_lost=True)
        inside = asyncio.Event()

        async def body() -> None:
            async with lock:
                inside.set()
                await asyncio.sleep(30)

        running = asyncio.create_task(a.run(body))
        await inside.wait()
        await b.force(self.backend(), name)
        await until(running.done, within=3 * self.kept)
        with pytest.raises(LeaseLostError) as lost:
            await running
        assert isinstance(lost.value.__cause__, asyncio.CancelledError)
        assert await a.do(_cancellations) == 0

    async def test_a_foreign_cancellation_wins(self, tasks: AsyncRunner) -> None:
        """Let a cancellation from elsewhere through, and free the lock."""
        a, b = tasks.actor(), tasks.actor()
        name = tasks.name()
        lock = self.lock(name, cancel_on_lost=True)
        inside = asyncio.Event()

        async def body() -> None:
            async with lock:
                inside.set()
                await asyncio.sleep(30)

        running = asyncio.create_task(a.run(body))
        await inside.wait()
        a.cancel()
        with pytest.raises(Cancelled):
            await running
        await b.release(await b.take(self.lock(name)))

    @applies_to_all
    async def test_a_thread_cannot_be_cancelled(self, threads: SyncRunner) -> None:
        """Refuse `cancel_on_lost` where it could do nothing."""
        a = threads.actor()
        lock = self.lock(threads.name(), cancel_on_lost=True)
        with pytest.raises(InvalidLockError):
            await a.enter(lock)
        assert not await a.locked(lock)


def _cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()
