"""3. A name that is locked with ``min_hold`` is not free before, however its holder ends."""

from __future__ import annotations

import asyncio
import time

import pytest

from .... import InvalidLockError, LeaseLostError, LockNotAcquiredError, UnsupportedOperationError
from ...runners import Actor, Runner
from ..base import ContractBase, lacks, needs

__all__ = ["MinHold"]


class MinHold(ContractBase):
    """Once a period: a released lock stays taken, and a crash does not shorten that."""

    async def _free_after(self, actor: Actor, name: str, begun: float) -> None:
        """Fail unless a waiter gets the lock after ``self.brief`` seconds, and not before."""
        lease = await actor.take(self.lock(name), wait=self.waits_out(2 * self.brief))
        assert time.monotonic() - begun >= self.brief
        await actor.release(lease)

    @needs("transferable")
    async def test_a_released_lock_stays_taken(self, runner: Runner) -> None:
        """Keep the name from all, the former holder included, and show until when."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), ttl=self.short, min_hold=20)
        lease = await a.take(lock)
        assert lease.ttl == 20
        await a.release(lease)
        assert lease.remaining() == 0
        assert await b.is_refused(lock)
        with pytest.raises(LockNotAcquiredError) as refused:
            await a.enter(self.lock(lease.name, wait=0))
        if refused.value.holder is not None:  # else the store told nothing of it
            assert "min_hold" in str(refused.value)
        info = await a.call(self.backend(), "inspect", lease.name)
        if self.has("shows_holders"):
            assert info.min_hold == 20
            assert (info.held_until() - info.acquired_at).total_seconds() == 20
        if self.has("force_releases"):
            await b.force(self.backend(), lease.name)
        else:
            await a.call(self.backend(), "release", lease._hold.claim)
        await b.release(await b.take(self.lock(lease.name), wait=self.handoff))

    @needs("transferable")
    async def test_a_resigned_lock_is_free_at_once(self, runner: Runner) -> None:
        """Free the lock by `resign`, whatever min_hold says."""
        a, b = runner.actor(), runner.actor()
        lease = await a.take(self.lock(runner.name(), min_hold=20))
        await a.resign(lease)
        again = await b.take(self.lock(lease.name), wait=self.handoff)
        self.newer(again, than=lease)
        await b.release(again)

    @needs("transferable")
    async def test_nothing_shortens_it(self, runner: Runner) -> None:
        """Neither an error, nor a crash, a shorter renewal, nesting, or a transfer."""
        a, b = runner.actor(), runner.actor()
        least = self.brief
        failed, dropped, renewed, nested, handed = map(runner.name, "abcde")
        waiters = [runner.actor() for _ in range(5)]
        begun: dict[str, float] = {}

        begun[failed] = time.monotonic()
        block = self.lock(failed, ttl=self.short, min_hold=least)
        await a.enter(block)
        await a.leave(block, KeyError("failed"))

        begun[renewed] = time.monotonic()
        shorter = await a.take(self.lock(renewed, min_hold=least, renew=False))
        await a.renew(shorter, self.least)

        outer = await a.take(self.lock(nested, reentrant=True))
        begun[nested] = time.monotonic()
        inner = await a.take(self.lock(nested, min_hold=least, reentrant=True))
        await a.release(inner)
        await a.release(outer)

        begun[handed] = time.monotonic()
        given = await a.take(self.lock(handed, min_hold=least))
        await b.release(await b.attach(await a.do(given.detach)))

        begun[dropped] = time.monotonic()
        await a.take(self.lock(dropped, ttl=self.short, min_hold=least))
        await a.close()
        await asyncio.gather(
            *(
                self._free_after(actor, name, since)
                for actor, (name, since) in zip(waiters, begun.items(), strict=True)
            )
        )
        with pytest.raises(LeaseLostError):
            shorter.check()

    async def test_nonsense_is_refused(self, runner: Runner) -> None:
        """Refuse what is no length of time, and a max_hold that is shorter."""
        a = runner.actor()
        for wrong in (0, -1, True, "5", float("nan")):
            with pytest.raises(InvalidLockError, match="min_hold"):
                self.lock(runner.name(), min_hold=wrong)
        if self.has("transferable"):
            with pytest.raises(InvalidLockError, match="min_hold"):
                await a.acquire(self.lock(runner.name(), min_hold=60, max_hold=30))

    @lacks("transferable")
    async def test_it_is_refused(self, runner: Runner) -> None:
        """Refuse it where a lock ends with its connection, before the store is touched."""
        a = runner.actor()
        name = runner.name()
        with pytest.raises(UnsupportedOperationError, match="min_hold"):
            await a.acquire(self.lock(name, min_hold=5))
        await a.release(await a.take(self.lock(name)))
