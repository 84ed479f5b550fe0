"""3. A holder that vanishes frees the lock within ``backend.max_ttl(ttl) + backend.grace``."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable

import pytest

from .... import Lease, LeaseLostError
from ...processes import Process
from ...runners import AsyncRunner, Runner
from ...taps import tap
from ..base import ContractBase, needs

__all__ = ["Liveness"]


class Liveness(ContractBase):
    """No orphaned lock, and no renewal for those who are gone."""

    async def _free_within(self, runner: Runner, name: str, seconds: float) -> None:
        """Fail unless a waiter that comes now gets the lock in time."""
        waiter = runner.actor()
        lease = await waiter.take(self.lock(name), wait=seconds + self.handoff)
        await waiter.release(lease)

    async def test_an_unrenewed_lease_runs_out(self, runner: Runner) -> None:
        """Free the lock when the ttl has passed, and not before its holder knows of it."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(self.lock(name, ttl=self.brief, renew=False))
        theirs = await b.take(lock, wait=self.waits_out(self.brief))
        assert lease.lost
        await b.release(theirs)

    async def test_a_dead_holders_lease_runs_out(self, runner: Runner) -> None:
        """Stop renewing when the thread or task that holds has ended, though the lease lives."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name(), ttl=self.brief))
        await a.close()
        await self._free_within(runner, lease.name, self.ends_within(self.brief))
        assert lease.lost

    async def test_an_adopted_lease_outlives_its_taker(self, runner: Runner) -> None:
        """Renew on when another has adopted the lease of a thread or task that has ended."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        lock = self.lock(runner.name(), ttl=self.kept)
        lease = await a.take(lock)
        await b.do(lease.adopt)
        await a.close()
        await asyncio.sleep(1.1 * self.kept)
        lease.check()
        assert await c.is_refused(lock)
        await b.release(lease)

    async def test_a_lease_that_a_task_returned_is_renewed(self, tasks: AsyncRunner) -> None:
        """Renew for whoever awaited it what a task of its own acquired, and has ended."""
        a, b = tasks.actor(), tasks.actor()
        ttl = self.kept
        locks = [self.lock(tasks.name(str(number)), ttl=ttl) for number in range(2)]

        async def traced(taking: Awaitable[Lease | None]) -> Lease | None:
            return await taking  # as an instrumented program does it

        async def gather() -> list[Lease | None]:
            one, two = (lock.aacquire(wait=0) for lock in locks)
            return list(await asyncio.gather(one, traced(two)))

        leases = await a.run(gather)
        await asyncio.sleep(1.1 * ttl)
        for lock, lease in zip(locks, leases, strict=True):
            assert lease is not None
            assert await b.is_refused(lock)
            await a.release(lease)

    async def test_a_lease_that_is_used_elsewhere_is_renewed(self, runner: Runner) -> None:
        """Renew for who checks it, when who acquired it has ended."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        ttl = self.kept
        lock = self.lock(runner.name(), ttl=ttl)
        lease = await a.take(lock)
        await a.close()
        await b.do(lease.check)
        await asyncio.sleep(1.1 * ttl)
        assert await c.is_refused(lock)
        await b.release(lease)

    async def test_a_dropped_lease_runs_out(self, runner: Runner) -> None:
        """Stop renewing when nothing has the lease object any more, at once, without collecting."""
        a = runner.actor()
        name = runner.name()
        gc.disable()
        try:
            lease = await a.take(self.lock(name, ttl=self.brief))
            lease.on_lost(print)
            del lease
            await self._free_within(runner, name, self.ends_within(self.brief))
        finally:
            gc.enable()

    async def test_a_lease_is_not_renewed_past_max_hold(self, runner: Runner) -> None:
        """Stop renewing after MAX_HOLD, by the lock or by the alias; the holder learns of it."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name(), ttl=self.brief, max_hold=self.brief))
        await self._free_within(runner, lease.name, self.brief + self.ends_within(self.brief))
        with pytest.raises(LeaseLostError):
            await a.release(lease)

    @needs("processes")
    async def test_a_killed_process_frees(self, runner: Runner) -> None:
        """Give a waiter the lock of a process that was killed while it held."""
        a = runner.actor()
        name = runner.name()
        async with Process(runner.kind, self.alias) as process:
            assert await process.acquire(name, ttl=self.kept, wait=10) is not None
            await asyncio.sleep(1.1 * self.kept)  # it renews
            assert await a.is_refused(self.lock(name))
            waiting = a.begin(self.lock(name), wait=20)
            await process.kill()
            killed = time.monotonic()
            lease = await waiting
        assert isinstance(lease, Lease)
        assert time.monotonic() - killed <= self.ends_within(self.kept) + self.round_trip
        await a.release(lease)

    @needs("processes")
    async def test_a_killed_waiter_is_not_waited_for(self, runner: Runner) -> None:
        """Pass a freed lock by those who died while they waited for it."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        async with Process(runner.kind, self.alias) as process:
            process.tell("acquire", name=name, wait=20, options={"ttl": self.brief})
            await asyncio.sleep(0.3)  # it waits, or is killed before it does: both are right
            await process.kill()
        with tap(self.backend(), "try_acquire") as calls:
            waiting = b.begin(lock, wait=20)
            await calls.came()
            await a.release(lease)
            freed = time.monotonic()
            theirs = await waiting
        assert isinstance(theirs, Lease)
        bound = self.ends_within(self.brief) if self.has("queues") else self.handoff
        assert time.monotonic() - freed <= bound + self.round_trip
        await b.release(theirs)
