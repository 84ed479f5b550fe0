"""2. Handing a held lock on: to another process by a handle, to a thread or task by adopting."""

from __future__ import annotations

import asyncio
import json

import pytest

from .... import (
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockNotHeldError,
    UnsupportedOperationError,
)
from ...runners import Runner
from ..base import ContractBase, lacks, needs

__all__ = ["Handing"]


class Handing(ContractBase):
    """Detach, attach and adopt."""

    async def test_a_detached_lease_is_attached(self, runner: Runner) -> None:
        """Keep the lock and its token on the way from one actor to another."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        handle = await a.do(lease.detach)
        assert isinstance(handle, str)
        for call in (a.do(lease.check), a.renew(lease), a.release(lease)):
            with pytest.raises(LockNotHeldError):
                await call
        assert lease.remaining() == 0
        assert await c.is_refused(lock)
        assert await a.is_refused(lock)  # detached, so no AlreadyHeldError
        taken = await b.attach(handle)
        assert self.token(taken) == self.token(lease)
        assert taken.remaining() > 0
        await b.release(taken)
        with pytest.raises(LeaseLostError):
            await c.attach(handle)
        await c.release(await c.take(lock))

    async def test_the_attaching_one_holds(self, runner: Runner) -> None:
        """Count the one who attached as the holder for re-entry, and no other."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        taken = await b.attach(await a.do((await a.take(lock)).detach))
        again = await b.take(lock)
        assert self.token(again) == self.token(taken)
        assert await a.is_refused(lock)
        await b.release(again)
        await b.release(taken)

    async def test_a_block_may_hand_its_lease_on(self, runner: Runner) -> None:
        """Leave a block quietly whose lease was detached in the body, and do not release it."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        handle = await a.do((await a.enter(lock)).detach)
        await a.leave(lock)
        assert await b.is_refused(lock)
        await b.release(await b.attach(handle))

    async def test_a_handle_is_good_for_the_ttl(self, runner: Runner) -> None:
        """Refuse a handle whose lease ran out on the way."""
        a, b = runner.actor(), runner.actor()
        lease = await a.take(self.lock(runner.name(), ttl=self.short))
        handle = await a.do(lease.detach)
        await asyncio.sleep(self.ends_within(self.short))
        await asyncio.sleep(0.2)  # a store that stood still with us until now frees what is over
        with pytest.raises(LeaseLostError):
            await b.attach(handle)

    @needs("force_releases")
    async def test_a_forged_handle_is_refused(self, runner: Runner) -> None:
        """Refuse what `detach` did not give, and what it gave of a lock that was forced since."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        handle = await a.do((await a.take(lock)).detach)
        parts = json.loads(handle)
        for forged in ("", "x", "{}", "[]", "null", "1", json.dumps([99, *parts[1:]])):
            with pytest.raises(InvalidLockError):
                await b.attach(forged)
        parts[3] = "0" * len(parts[3])  # another owner
        with pytest.raises(LeaseLostError):
            await b.attach(json.dumps(parts))
        await b.force(self.backend(), name)
        with pytest.raises(LeaseLostError):
            await b.attach(handle)

    async def test_a_lease_taken_twice_is_not_detached(self, runner: Runner) -> None:
        """Keep a lease here whose other holder in this process would go without."""
        a = runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        outer, inner = await a.take(lock), await a.take(lock)
        with pytest.raises(LockNotHeldError):
            await a.do(inner.detach)
        await a.release(inner)
        await a.release(outer)

    @needs("processes", "transferable")
    async def test_a_lease_goes_to_another_process_and_back(self, runner: Runner) -> None:
        """Keep lock and token on the way to another process and back."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        async with self.process(runner) as process:
            token = await process.ask("attach", handle=await a.do(lease.detach))
            self.same(token, lease)
            assert await b.is_refused(lock)
            back: Lease = await a.attach(await process.ask("detach", name=name))
            self.same(token, back)
            await process.ask("attach", handle=await a.do(back.detach))
            await process.release(name)
        await b.release(await b.take(lock))

    @lacks("transferable")
    async def test_a_lease_does_not_go_to_another_process(self, runner: Runner) -> None:
        """Say so where it is attached; in its own process it is taken up anyway."""
        a = runner.actor()
        lock = self.lock(runner.name())
        async with self.process(runner) as process:
            handle = await a.do((await a.take(lock)).detach)
            with pytest.raises(UnsupportedOperationError):
                await process.ask("attach", handle=handle)
            await a.release(await a.attach(handle))

    async def test_an_adopted_lease_has_a_new_holder(self, runner: Runner) -> None:
        """Count the one who adopted as the holder, and its taker no more."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        lease = await a.take(lock)
        await b.do(lease.adopt)
        assert await a.is_refused(lock)
        again = await b.take(lock)
        assert self.token(again) == self.token(lease)
        await b.release(again)
        await b.release(lease)
        with pytest.raises(LockNotHeldError):
            await a.do(lease.adopt)
