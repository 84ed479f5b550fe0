"""Locks with a limit: never more than so many holders, each with a slot of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from .... import (
    AlreadyHeldError,
    InvalidLockError,
    LeaseLostError,
    LockTimeoutError,
    UnsupportedOperationError,
    lock,
    lock_all,
)
from ....backends.base import BaseLockBackend
from ...contention import Contention, judge_contention, meet
from ...processes import Process
from ...runners import Runner
from ..base import ContractBase, lacks, needs

__all__ = ["Limits"]


class Limits(ContractBase):
    """So many at once, and no more."""

    @needs("supports_limit")
    async def test_so_many_and_no_more(self, runner: Runner) -> None:
        """Grant as many slots as there are, each to one; a release frees its own."""
        actors = [runner.actor() for _ in range(4)]
        name = runner.name()
        lock = self.lock(name, limit=3)
        leases = [await actor.take(lock) for actor in actors[:3]]
        assert {lease.slot for lease in leases} == {0, 1, 2}
        assert await actors[3].is_refused(lock)
        with pytest.raises(LockTimeoutError) as refused:
            await actors[3].enter(self.lock(name, limit=3, wait=0.05))
        assert refused.value.holder is None or "All 3 slots" in str(refused.value)
        if self.has("shows_holders"):
            held = await actors[3].held(self.backend(), name)
            assert {(info.slot, info.limit) for info in held} == {(n, 3) for n in range(3)}
        await actors[1].release(leases[1])
        again = await actors[3].take(lock, wait=self.handoff)
        assert again.slot == leases[1].slot
        self.newer(again, than=leases[1])
        await actors[0].release(leases[0])
        await actors[2].release(leases[2])
        await actors[3].release(again)
        assert not await actors[0].locked(lock)

    @needs("supports_limit")
    async def test_grants_of_one_moment_count(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Count each grant, though by the clocks of the processes no time has passed between two.

        A store may not count a write of what is there already.
        """
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        here, there = (
            lock(runner.name(), using=twins(runner.prefix).alias, limit=2, ttl=60) for _ in "ab"
        )
        now, now_ns = time.time(), time.time_ns()
        with (
            mock.patch.object(time, "time", return_value=now),
            mock.patch.object(time, "time_ns", return_value=now_ns),
        ):
            one, two = await a.take(here), await b.take(there)
            assert await c.is_refused(here)
            await a.release(one)
            three = await c.take(here)
            assert three.slot == one.slot
            assert await a.is_refused(here)
            await b.release(two)
            await c.release(three)
        assert not await a.locked(there)

    @needs("supports_limit")
    async def test_a_waiter_gets_the_slot_that_is_freed(self, runner: Runner) -> None:
        """Wake who waits, whichever of the holders releases."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        lock = self.lock(runner.name(), limit=2)
        for last in (True, False):
            one, two = await a.take(lock, wait=self.handoff), await b.take(lock, wait=self.handoff)
            waiting = c.begin(lock, wait=30)
            await asyncio.sleep(0.05)
            holders = [(a, one), (b, two)]
            actor, lease = holders.pop(1 if last else 0)
            await actor.release(lease)
            three = await waiting
            assert three is not None
            assert three.slot == lease.slot
            for actor, lease in [*holders, (c, three)]:
                await actor.release(lease)

    @needs("supports_limit")
    async def test_all_name_the_same_limit(self, runner: Runner) -> None:
        """Refuse another limit than that of the holders at once, and name both."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name, limit=3))
        others: list[tuple[dict[str, Any], str]]
        others = [({"limit": 2}, "limit=2"), ({}, "no limit"), ({"shared": True}, "no limit")]
        for other, said in others:
            if "shared" in other and not self.has("supports_shared"):
                continue
            with pytest.raises(InvalidLockError, match="limit=3") as caught:
                await b.acquire(self.lock(name, **other), wait=60)
            assert said in str(caught.value)
            with pytest.raises(InvalidLockError, match="limit=3"):
                await a.acquire(self.lock(name, **other), wait=60)
        await a.release(lease)
        for mode in (other for other, _ in others[1:]):
            if mode and not self.has("supports_shared"):
                continue
            lease = await a.take(self.lock(name, **mode), wait=self.handoff)
            with pytest.raises(InvalidLockError, match="limit=3"):
                await b.acquire(self.lock(name, limit=3), wait=60)
            await a.release(lease)
        await b.release(await b.take(self.lock(name, limit=2), wait=self.handoff))

    @needs("supports_limit")
    async def test_each_slot_has_a_lease(self, runner: Runner) -> None:
        """Give the slot of a lease that ran out to another, and renew the others."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        kept = await a.take(self.lock(name, limit=2))
        short = await b.take(self.lock(name, limit=2, ttl=self.short, renew=False))
        lease = await c.take(self.lock(name, limit=2), wait=self.waits_out(self.short))
        assert (lease.slot, short.lost) == (short.slot, True)
        self.newer(lease, than=short)
        with pytest.raises(LeaseLostError):
            await b.renew(short)
        await a.renew(kept)
        await a.release(kept)
        await c.release(lease)

    @needs("supports_limit", "transferable")
    async def test_a_slot_is_handed_over(self, runner: Runner) -> None:
        """Detach and attach: the slot goes along."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), limit=2)
        first = await b.take(lock)
        lease = await a.take(lock)
        slot = lease.slot
        lease = await b.attach(await a.do(lease.detach))
        assert lease.slot == slot
        await b.release(lease)
        await b.release(first)

    @needs("supports_limit")
    async def test_a_slot_is_taken_again_by_its_holder(self, runner: Runner) -> None:
        """Nest where that is asked, in the same slot; else refuse, though another slot is free."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name, limit=2))
        with pytest.raises(AlreadyHeldError):
            await a.acquire(self.lock(name, limit=2), wait=60)
        again = await a.take(self.lock(name, limit=2, reentrant=True))
        assert again.slot == lease.slot
        await a.release(lease)
        other = await b.take(self.lock(name, limit=2))
        assert other.slot != again.slot
        await b.release(other)
        await a.release(again)

    @needs("supports_limit", "supports_shared")
    async def test_a_group_of_all_kinds(self, runner: Runner) -> None:
        """Take locks of all kinds at once, or none of them."""
        a, b = runner.actor(), runner.actor()
        alone = self.lock(runner.name("alone"))
        shared = self.lock(runner.name("shared"), shared=True)
        limited = self.lock(runner.name("limited"), limit=2)
        group = lock_all(alone, shared, limited)
        leases = await a.take(group)
        assert [(lease.shared, lease.slot) for lease in leases] == [
            (False, None),
            (True, None),
            (False, 0),
        ]
        others = lock_all(shared, limited)
        theirs = await b.take(others)
        assert [(lease.shared, lease.slot) for lease in theirs] == [(True, None), (False, 1)]
        for lease in leases:
            await a.release(lease)
        assert await a.is_refused(lock_all(alone, self.lock(str(shared.name))))
        for lease in theirs:
            await b.release(lease)

    @needs("supports_limit", "force_releases", "supports_fencing")
    async def test_a_slot_is_freed_by_force(self, runner: Runner) -> None:
        """Free the slot that the token names."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name, limit=2)
        one, two = await a.take(lock), await b.take(lock)
        info = await c.force(self.backend(), name, two.fencing_token)
        assert (info.slot, info.limit) == (two.slot, 2)
        three = await c.take(lock, wait=self.handoff)
        with pytest.raises(LeaseLostError):
            await b.release(two)
        assert three.slot == two.slot
        for actor, lease in ((a, one), (c, three)):
            await actor.release(lease)

    @needs("supports_limit")
    async def test_slots_of_this_process(self, runner: Runner, tmp_path: Path) -> None:
        """Never let more in than there are slots, by many actors."""
        task = Contention(self.alias, runner.name(), str(tmp_path), rounds=8, limit=2)
        seen = await asyncio.gather(*(meet(runner.actor(), task, who) for who in range(5)))
        judge_contention(chain(*seen), 2, fencing=self.has("supports_fencing"))

    @needs("supports_limit", "processes")
    async def test_slots_in_processes(self, runner: Runner, tmp_path: Path) -> None:
        """The same in several processes."""
        task = Contention(self.alias, runner.name(), str(tmp_path), rounds=15, limit=2)
        async with AsyncExitStack() as stack:
            processes = await asyncio.gather(
                *(stack.enter_async_context(self.process(runner)) for _ in range(3))
            )
            seen = await asyncio.gather(
                *(process.meet(task, who) for who, process in enumerate(processes))
            )
        judge_contention(chain(*seen), 2, fencing=self.has("supports_fencing"))

    @needs("supports_limit", "processes")
    async def test_a_killed_process_frees_its_slot(self, runner: Runner) -> None:
        """Give the slot of a killed process to a waiter when its ttl is over."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name, limit=2)
        async with Process(runner.kind, self.alias) as process:
            assert await process.acquire(name, ttl=self.kept, wait=10, limit=2) is not None
            lease = await a.take(lock)
            await process.kill()
            within = self.ends_within(self.kept) + self.settles
            other = await b.take(lock, wait=within)
            assert other.slot != lease.slot
            await a.release(lease)
            await b.release(other)

    @lacks("supports_limit")
    async def test_it_has_no_limits(self, runner: Runner) -> None:
        """Say so, before the store is touched."""
        a = runner.actor()
        lock = self.lock(runner.name(), limit=2)
        with pytest.raises(UnsupportedOperationError, match="limit") as caught:
            await a.acquire(lock, wait=0)
        assert (caught.value.name, caught.value.alias) == (lock.name, self.alias)
