"""1. Between grant and release or expiry no other is granted the name."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pytest

from .... import Lease, LockBackendError, LockNotAcquiredError, LockTimeoutError
from ...counting import Task, count, judge
from ...runners import Actor, Runner, is_late
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Exclusion"]


class Exclusion(ContractBase):
    """Exclusion between threads, tasks and processes."""

    @applies_to_all
    async def test_a_lease_is_granted_and_released(self, runner: Runner) -> None:
        """Grant what is not held; the lease is a context manager and true."""
        a = runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        assert isinstance(lease, Lease)
        assert bool(lease)
        assert (lease.name, lease.alias) == (name, self.alias)
        lease.check()
        await a.release(lease)
        assert lease.remaining() == 0

    @applies_to_all
    async def test_durations_are_seconds_or_timedeltas(self, runner: Runner) -> None:
        """Take ttl and wait as int, float or timedelta, up to the longest ttl of the backend."""
        a = runner.actor()
        longest = self.backend().longest_ttl
        for ttl in (5, 5.5, timedelta(seconds=5), longest, timedelta(seconds=longest)):
            for wait in (0, 0.5, timedelta(seconds=1), None):
                lease = await a.take(self.lock(runner.name(f"{ttl}:{wait}"), ttl=ttl), wait=wait)
                await a.release(lease)
        # Tried again for as long as the store needs longer to answer than this lasts.
        await a.take(self.lock(runner.name("shortest"), ttl=self.least), wait=None)

    async def test_a_held_lock_is_refused(self, runner: Runner) -> None:
        """Refuse a held name, by whatever Lock object; other names are free, and so it is after."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        assert await b.is_refused(lock)
        assert await b.is_refused(self.lock(name, ttl=1))
        assert await b.locked(lock)
        other = await b.take(self.lock(runner.name("other")))
        await b.release(other)
        await a.release(lease)
        assert not await b.locked(lock)
        await b.release(await b.take(lock))

    async def test_a_block_is_not_entered(self, runner: Runner) -> None:
        """Raise when a `with` block cannot have its lock; say whether it was waited for."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        with pytest.raises(LockNotAcquiredError) as refused:
            await b.enter(self.lock(name, wait=0))
        assert not isinstance(refused.value, LockTimeoutError)
        assert (refused.value.name, refused.value.alias) == (name, self.alias)
        assert refused.value.retry_after is None or 0 <= refused.value.retry_after <= 20
        with pytest.raises(LockTimeoutError):
            await b.enter(self.lock(name, wait=0.05))
        await a.release(lease)

    @applies_to_all
    async def test_a_block_is_left(self, runner: Runner) -> None:
        """Release at the end of a block, also by an error, which is not swallowed."""
        a = runner.actor()
        for error in (None, ValueError("of the body"), KeyboardInterrupt()):
            lock = self.lock(runner.name())
            lease = await a.enter(lock)
            await a.leave(lock, error)
            assert lease.remaining() == 0
            assert not await a.locked(lock)

    @applies_to_all
    async def test_a_block_may_end_elsewhere(self, runner: Runner) -> None:
        """Release when a block is left by another thread or task than entered it."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        lease = await a.enter(lock)
        await b.leave(lock)
        assert lease.remaining() == 0
        await a.release(await a.take(lock))

    async def test_one_object_serves_many(self, runner: Runner) -> None:
        """Keep the blocks of many apart that use one and the same Lock object."""
        lock = self.lock(runner.name(), wait=20)
        inside: list[Lease] = []

        async def block(actor: Actor) -> None:
            lease = await actor.enter(lock)
            inside.append(lease)
            await asyncio.sleep(0.002)
            assert inside == [lease]
            inside.remove(lease)
            await actor.leave(lock)
            assert lease.remaining() == 0

        await asyncio.gather(*(block(runner.actor()) for _ in range(8)))

    async def test_exactly_one_of_many_obtains(self, runner: Runner) -> None:
        """Grant a name to exactly one of many who ask at once."""
        actors = [runner.actor() for _ in range(8)]
        for turn in range(5):
            lock = self.lock(runner.name(str(turn)))
            asked: list[asyncio.Task[Lease | None]] = []
            for actor in actors:
                asking = actor.begin(lock, wait=0)
                asked.append(asking)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            leases, late = [], False
            for actor, answer in zip(actors, answers, strict=True):
                if isinstance(answer, LockBackendError) and is_late(answer):
                    late = True  # it may have been granted, and is given back
                elif isinstance(answer, BaseException):
                    raise answer
                elif answer:
                    leases.append((actor, answer))
            assert len(leases) == 1 or (not leases and late), answers
            for actor, lease in leases:
                await actor.release(lease)

    async def test_no_update_is_lost_between_actors(self, runner: Runner, tmp_path: Path) -> None:
        """Count in an unprotected file by many actors of this process."""
        file = tmp_path / "count"
        file.write_text("0")
        task = Task(self.alias, runner.name(), str(file), rounds=8, short=self.short)
        rounds = await asyncio.gather(*(count(runner.actor(), task, who) for who in range(5)))
        judge(chain(*rounds), str(file), fencing=self.has("supports_fencing"))

    @needs("processes")
    async def test_no_update_is_lost_between_processes(
        self, runner: Runner, tmp_path: Path
    ) -> None:
        """Count in an unprotected file by several processes."""
        file = tmp_path / "count"
        file.write_text("0")
        task = Task(self.alias, runner.name(), str(file), rounds=20, short=self.short)
        async with AsyncExitStack() as stack:
            processes = await asyncio.gather(
                *(stack.enter_async_context(self.process(runner)) for _ in range(3))
            )
            rounds = await asyncio.gather(
                *(process.count(task, who) for who, process in enumerate(processes))
            )
        judge(chain(*rounds), str(file), fencing=self.has("supports_fencing"))
