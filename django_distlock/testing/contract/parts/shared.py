"""Shared locks: any number that share a name, or one that holds it alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
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
    LockNotAcquiredError,
    LockNotHeldError,
    UnsupportedOperationError,
    lock,
)
from ....backends.base import BaseLockBackend
from ...contention import Contention, SeenGrant, judge_contention, meet
from ...processes import Process
from ...runners import Runner, eventually
from ..base import ContractBase, lacks, needs

__all__ = ["Shared"]


class Shared(ContractBase):
    """Readers and writers."""

    @needs("supports_shared")
    async def test_many_share_and_one_is_alone(self, runner: Runner) -> None:
        """Keep out who wants it alone while others share it, and all while one has it alone."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        alone, shared = self.lock(name), self.lock(name, shared=True)
        one, two = await a.take(shared), await b.take(shared)
        assert (one.shared, two.shared, one.slot) == (True, True, None)
        assert await c.is_refused(alone)
        with pytest.raises(LockNotAcquiredError) as refused:
            await c.enter(self.lock(name, wait=0))
        assert refused.value.holder is None or "Shared by" in str(refused.value)
        await a.release(one)
        assert await c.is_refused(alone)
        await b.release(two)
        three = await c.take(alone, wait=self.handoff)
        self.newer(three, than=one)
        self.newer(three, than=two)
        assert not three.shared
        for actor in (a, b):
            assert await actor.is_refused(shared)
        await c.release(three)
        four = await a.take(shared, wait=self.handoff)
        self.newer(four, than=three)
        await a.release(four)
        assert not await b.locked(alone)

    @needs("supports_shared")
    async def test_readers_of_one_moment_count(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Count each reader, as `Limits.test_grants_of_one_moment_count`."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        here, there = (twins(runner.prefix).alias for _ in "ab")
        name = runner.name()
        now, now_ns = time.time(), time.time_ns()
        with (
            mock.patch.object(time, "time", return_value=now),
            mock.patch.object(time, "time_ns", return_value=now_ns),
        ):
            one = await a.take(lock(name, using=here, shared=True, ttl=60))
            two = await b.take(lock(name, using=there, shared=True, ttl=60))
            await a.release(one)
            assert await c.is_refused(lock(name, using=here, ttl=60))
            await b.release(two)
            await c.release(await c.take(lock(name, using=here, ttl=60), wait=self.handoff))

    @needs("supports_shared")
    async def test_each_shares_with_a_lease_of_its_own(self, runner: Runner) -> None:
        """Renew, show and release each lease by itself; one that runs out takes no other along."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        shared = self.lock(name, shared=True)
        kept, other = await a.take(shared), await b.take(shared)
        if self.has("shows_holders"):
            held = await c.held(self.backend(), name)
            assert [info.shared for info in held] == [True, True]
            tokens = {info.fencing_token for info in held}
            assert tokens == {self.token(kept), self.token(other)}
            assert len({info.owner for info in held}) == 2
        await b.release(other)
        short = await b.take(self.lock(name, shared=True, ttl=self.short, renew=False))

        async def alone() -> bool:
            return len(await c.call(self.backend(), "holders", name)) == 1

        await eventually(alone, self.waits_out(self.short))
        assert short.lost
        with pytest.raises(LeaseLostError):
            await b.release(short)
        await a.renew(kept, 20)
        kept.check()
        again = await b.take(shared)
        await a.release(kept)
        again.check()
        assert await c.is_refused(self.lock(name))
        await b.release(again)

    @needs("supports_shared", "force_releases", "supports_fencing")
    async def test_one_of_them_is_freed_by_force(self, runner: Runner) -> None:
        """Free the share that the token names, and spare the other one."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        shared = self.lock(name, shared=True)
        one, two = await a.take(shared), await b.take(shared)
        info = await a.force(self.backend(), name, two.fencing_token)
        assert (info.fencing_token, info.shared) == (two.fencing_token, True)
        with pytest.raises(LeaseLostError):
            await b.renew(two)
        await a.renew(one)
        with pytest.raises(LockNotHeldError):
            await a.force(self.backend(), name, two.fencing_token)
        await a.release(one)

    @needs("supports_shared", "transferable")
    async def test_a_share_is_handed_over(self, runner: Runner) -> None:
        """Detach and attach a shared lease, which is shared still."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        shared = self.lock(runner.name(), shared=True)
        lease = await b.attach(await a.do((await a.take(shared)).detach))
        assert lease.shared
        other = await c.take(shared)
        await c.release(other)
        await b.release(lease)

    @needs("supports_shared")
    async def test_who_shares_does_not_wait_to_be_alone(self, runner: Runner) -> None:
        """Raise at once, as it would wait for itself; nest what is shared, where that is asked."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name, shared=True))
        for reentrant in (False, True):
            with pytest.raises(AlreadyHeldError, match="downgrade"):
                await a.acquire(self.lock(name, reentrant=reentrant), wait=60)
        with pytest.raises(AlreadyHeldError):
            await a.acquire(self.lock(name, shared=True), wait=60)
        again = await a.take(self.lock(name, shared=True, reentrant=True))
        await a.release(lease)
        assert await b.is_refused(self.lock(name))
        await a.release(again)
        await b.release(await b.take(self.lock(name), wait=self.handoff))

    @needs("supports_shared")
    async def test_a_lock_is_shared_without_a_gap(self, runner: Runner) -> None:
        """Turn what one holds alone into what it shares; no other gets it alone meanwhile."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name))
        waiting = b.begin(self.lock(name), wait=30)
        sharing = c.begin(self.lock(name, shared=True), wait=0)
        assert await sharing is None
        await a.downgrade(lease)
        assert lease.shared
        if self.has("shows_holders"):
            (info,) = await c.call(self.backend(), "holders", name)
            assert info.shared
        await asyncio.sleep(0.1)
        assert not waiting.done()
        with pytest.raises(LockNotHeldError):
            await a.downgrade(lease)
        await a.renew(lease)
        await a.release(lease)
        other = await waiting
        assert other is not None
        self.newer(other, than=lease)
        await b.release(other)

    @needs("supports_shared")
    async def test_a_writer_is_not_starved(self, runner: Runner) -> None:
        """Let who waits to be alone in, though readers follow one another without a gap."""
        actors = [runner.actor() for _ in range(4)]
        writer = runner.actor()
        name = runner.name()
        shared = self.lock(name, shared=True)
        over = asyncio.Event()

        async def read(number: int) -> None:
            while not over.is_set():
                lease = await actors[number].take(shared, wait=60)
                await asyncio.sleep(0.02 + 0.01 * number)
                await actors[number].release(lease)

        readers = [asyncio.create_task(read(number)) for number in range(4)]
        await asyncio.sleep(0.1)
        try:
            lease = await writer.take(self.lock(name), wait=60)
            await writer.release(lease)
        finally:
            over.set()
            await asyncio.gather(*readers)

    @needs("supports_shared")
    async def test_readers_and_writers_of_this_process(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        """Let readers meet readers only, and a writer no one, by many actors."""
        task = Contention(self.alias, runner.name(), str(tmp_path), rounds=8, limit=0)
        seen = await asyncio.gather(*(meet(runner.actor(), task, who) for who in range(5)))
        self._judge(seen)

    def _judge(self, seen: Iterable[list[SeenGrant]]) -> None:
        fencing, numbered = self.has("supports_fencing"), self.numbers_sharers
        judge_contention(chain(*seen), 0, fencing=fencing, numbered=numbered)

    @needs("supports_shared", "processes")
    async def test_readers_and_writers_in_processes(self, runner: Runner, tmp_path: Path) -> None:
        """The same in several processes."""
        task = Contention(self.alias, runner.name(), str(tmp_path), rounds=15, limit=0)
        async with AsyncExitStack() as stack:
            processes = await asyncio.gather(
                *(stack.enter_async_context(self.process(runner)) for _ in range(3))
            )
            seen = await asyncio.gather(
                *(process.meet(task, who) for who, process in enumerate(processes))
            )
        self._judge(seen)

    @needs("supports_shared", "processes")
    async def test_a_killed_reader_frees_its_own_share(self, runner: Runner) -> None:
        """Give a writer the lock when the ttl of a killed reader is over; others share on."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        async with Process(runner.kind, self.alias) as process:
            assert await process.acquire(name, ttl=self.kept, wait=10, shared=True) is not None
            lease = await a.take(self.lock(name, shared=True))
            await process.kill()
            await a.renew(lease)
            await a.release(lease)
            within = self.ends_within(self.kept) + self.settles
            await b.release(await b.take(self.lock(name), wait=within))

    @needs("supports_shared", "supports_fencing")
    async def test_a_reader_makes_no_fenced_writes(self, runner: Runner) -> None:
        """Refuse before the database is touched."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name(), shared=True))
        with pytest.raises(UnsupportedOperationError, match="shared"):
            lease._fence()
        await a.release(lease)

    @lacks("supports_shared")
    async def test_it_has_no_shared_locks(self, runner: Runner) -> None:
        """Say so, before the store is touched."""
        a = runner.actor()
        name = runner.name()
        lock = self.lock(name, shared=True)
        with pytest.raises(UnsupportedOperationError, match="shared") as caught:
            await a.acquire(lock, wait=0)
        assert (caught.value.name, caught.value.alias) == (name, self.alias)
        lease = await a.take(self.lock(name))
        with pytest.raises(UnsupportedOperationError, match="shared"):
            await a.downgrade(lease)
        await a.release(lease)

    async def test_wrong_modes_are_refused(self, runner: Runner) -> None:
        """Raise for what is no mode, and for two at once."""
        name = runner.name()
        wrong: list[dict[str, Any]] = [{"limit": each} for each in (0, -1, 1001, True, "3", 2.0)]
        for options in [*wrong, {"shared": 1}, {"limit": 3, "shared": True}]:
            with pytest.raises(InvalidLockError):
                self.lock(name, **options)
