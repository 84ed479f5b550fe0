"""3. A name that is locked with ``min_hold`` is not free before, however its holder ends."""

from __future__ import annotations

import asyncio
import time

import pytest

from .... import InvalidLockError, LeaseLostError, LockNotAcquiredError, UnsupportedOperationError
from ....lease import Lease
from ...worlds import Actor, World
from ..base import ContractBase, lacks, needs

__all__ = ["MinHold"]


class MinHold(ContractBase):
    """Once a period: a released lock stays taken, a crash does not shorten that."""

    async def _free_after(self, actor: Actor, name: str, begun: float) -> None:
        """Fail unless a waiter gets the lock after ``self.kept`` seconds, and not before."""
        lease = await actor.take(self.lock(name), wait=self.ends_within(2 * self.kept))
        assert time.monotonic() - begun >= self.kept
        await actor.release(lease)

    @needs("transferable")
    async def test_a_released_lock_stays_taken(self, world: World) -> None:
        """Keep the name from all for the rest of min_hold, the holder included."""
        a, b = world.actor(), world.actor()
        name = world.name()
        begun = time.monotonic()
        lock = self.lock(name, ttl=self.short, min_hold=self.kept)
        lease = await a.take(lock)
        assert lease.ttl == self.kept
        await a.release(lease)
        assert lease.remaining() == 0
        with pytest.raises(LockNotAcquiredError) as refused:
            await a.enter(self.lock(name, wait=0))
        if refused.value.holder is not None:  # else the store told nothing of it
            assert "min_hold" in str(refused.value)
        await self._free_after(b, name, begun)

    @needs("transferable")
    async def test_it_is_seen(self, world: World) -> None:
        """Show until when a lock stays taken."""
        a = world.actor()
        name = world.name()
        lease = await a.take(self.lock(name, min_hold=20))
        info = await a.call(self.backend(), "inspect", name)
        await a.resign(lease)
        assert info.min_hold == 20
        if info.acquired_at is not None:
            assert (info.held_until() - info.acquired_at).total_seconds() == 20

    @needs("transferable")
    async def test_a_resigned_lock_is_free_at_once(self, world: World) -> None:
        """Free the lock by `resign`, or by force, whatever min_hold says."""
        a, b = world.actor(), world.actor()
        lock = self.lock(world.name(), min_hold=20)
        lease = await a.take(lock)
        await a.resign(lease)
        again = await b.take(self.lock(lease.name), wait=self.handoff)
        self.newer(again, than=lease)
        await b.release(again)
        kept = await a.take(lock)
        await a.release(kept)
        assert await b.acquire(lock, wait=0) is None
        await b.force(self.backend(), lease.name)
        await b.resign(await b.take(lock, wait=self.handoff))

    @needs("transferable")
    async def test_an_error_does_not_shorten_it(self, world: World) -> None:
        """Keep the name for the rest though the block ended by an error, or the holder did."""
        a, b = world.actor(), world.actor()
        name = world.name()
        lock = self.lock(name, ttl=self.short, min_hold=self.kept)
        begun = time.monotonic()
        await a.enter(lock)
        await a.leave(lock, KeyError("failed"))
        await self._free_after(b, name, begun)
        begun = time.monotonic()
        await a.take(lock)
        await a.close()
        await self._free_after(b, name, begun)

    @needs("transferable")
    async def test_a_shorter_renewal_does_not_shorten_it(self, world: World) -> None:
        """Renew for the rest of min_hold at least."""
        a, b = world.actor(), world.actor()
        name = world.name()
        begun = time.monotonic()
        lease = await a.take(self.lock(name, min_hold=self.kept, renew=False))
        await a.renew(lease, self.short)
        await self._free_after(b, name, begun)
        with pytest.raises(LeaseLostError):
            await a.release(lease)

    @needs("transferable")
    async def test_a_nested_acquisition_may_ask_for_it(self, world: World) -> None:
        """Count from the nested acquisition, and free when the last one is released."""
        a, b = world.actor(), world.actor()
        name = world.name()
        outer = await a.take(self.lock(name, ttl=self.short, reentrant=True))
        begun = time.monotonic()
        inner = await a.take(self.lock(name, min_hold=self.kept, reentrant=True))
        await a.release(inner)
        await a.release(outer)
        await self._free_after(b, name, begun)

    @needs("transferable")
    async def test_it_is_handed_on(self, world: World) -> None:
        """Heed it where another has attached the lease."""
        a, b = world.actor(), world.actor()
        name = world.name()
        begun = time.monotonic()
        lease = await a.take(self.lock(name, min_hold=self.kept))
        taken = await b.attach(await a.do(lease.detach))
        await b.release(taken)
        await self._free_after(b, name, begun)

    async def test_nonsense_is_refused(self, world: World) -> None:
        """Refuse what is no length of time, and a max_hold that is shorter."""
        a = world.actor()
        for wrong in (0, -1, True, "5", float("nan")):
            with pytest.raises(InvalidLockError, match="min_hold"):
                self.lock(world.name(), min_hold=wrong)
        if self.has("transferable"):
            with pytest.raises(InvalidLockError, match="min_hold"):
                await a.acquire(self.lock(world.name(), min_hold=60, max_hold=30))

    @lacks("transferable")
    async def test_it_is_refused(self, world: World) -> None:
        """Refuse it where a lock ends with its connection, before the store is touched."""
        a = world.actor()
        name = world.name()
        with pytest.raises(UnsupportedOperationError, match="min_hold"):
            await a.acquire(self.lock(name, min_hold=5))
        lease = await asyncio.wait_for(a.take(self.lock(name)), 20)
        assert isinstance(lease, Lease)
        await a.release(lease)
