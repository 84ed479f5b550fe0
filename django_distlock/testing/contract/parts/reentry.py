"""9. Acquiring what one holds already is an error, or nests; and who "one" is."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from asgiref.sync import sync_to_async

from .... import AlreadyHeldError, Lease, LeaseLostError, LockNotAcquiredError, LockNotHeldError
from ...processes import Process
from ...runners import AsyncRunner, Runner
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Reentry"]


class Reentry(ContractBase):
    """Re-entry."""

    @applies_to_all
    async def test_waiting_for_oneself_is_an_error(self, runner: Runner) -> None:
        """Raise at once, however long the wait, and keep the lock as it is."""
        a = runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        started = time.monotonic()
        for wait in (0, 20, None):
            with pytest.raises(AlreadyHeldError) as refused:
                await a.acquire(lock, wait=wait)
            assert (refused.value.name, refused.value.alias) == (name, self.alias)
        with pytest.raises(AlreadyHeldError):
            await a.enter(self.lock(name))
        assert time.monotonic() - started < 4 * self.round_trip
        lease.check()
        await a.release(lease)
        await a.release(await a.take(lock))

    async def test_the_last_release_frees(self, runner: Runner) -> None:
        """Count the acquisitions of a reentrant lock, all under one token."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        leases = [await a.take(lock) for _ in range(3)]
        assert len({self.token(lease) for lease in leases}) == 1
        while len(leases) > 1:
            done = leases.pop(0)  # in any order
            await a.release(done)
            with pytest.raises(LockNotHeldError):
                await a.release(done)  # twice: no other acquisition pays for it
            leases[0].check()
            assert await b.is_refused(lock)
        await a.release(leases[0])
        await b.release(await b.take(lock))

    async def test_blocks_nest(self, runner: Runner) -> None:
        """Nest blocks, and free at the end of the outermost, also when one ends by an error."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        outer = await a.enter(lock)
        inner = await a.enter(lock)
        assert self.token(inner) == self.token(outer)
        await a.leave(lock, ValueError("of the inner body"))
        outer.check()
        assert await b.is_refused(lock)
        await a.leave(lock)
        await b.release(await b.take(lock))

    async def test_others_do_not_re_enter(self, runner: Runner) -> None:
        """Refuse another thread or task, also one that comes after the holder's end."""
        holder = runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        lease = await holder.take(lock)
        for _ in range(3):
            other = runner.actor()
            assert await other.is_refused(lock)
        await holder.close()
        for _ in range(3):  # one of them may be given the ended one's id by the system
            other = runner.actor()
            assert await other.is_refused(lock)
            await other.close()
        await runner.actor().release(lease)

    async def test_a_child_task_is_somebody_else(self, tasks: AsyncRunner) -> None:
        """Refuse a child of the task that holds, and tell that the parent may wait for it."""
        a = tasks.actor()
        lock = self.lock(tasks.name(), reentrant=True, wait=0)

        async def parent() -> None:
            async with lock:
                assert await asyncio.create_task(lock.aacquire()) is None
                with pytest.raises(LockNotAcquiredError, match="same chain of calls"):
                    await asyncio.create_task(lock.__aenter__())

        await a.run(parent)

    async def test_tasks_that_share_a_thread(self, tasks: AsyncRunner) -> None:
        """Grant to one of two tasks whose synchronous parts run on the same thread."""
        lock = self.lock(tasks.name(), reentrant=True)
        actors = [tasks.actor(), tasks.actor()]

        async def by_thread() -> Lease | None:
            return await sync_to_async(lock.acquire, thread_sensitive=True)(wait=0)

        answers = [await actor.run(by_thread) for actor in actors]
        assert [lease is not None for lease in answers] == [True, False]
        again = await actors[0].run(by_thread)  # the same flow of calls on the same thread
        for lease in (again, answers[0]):
            assert lease is not None
            assert answers[0] is not None
            assert self.token(lease) == self.token(answers[0])
            await actors[0].run(sync_to_async(lease.release, thread_sensitive=True))

    async def test_child_tasks_whose_synchronous_parts_share_a_thread(
        self, tasks: AsyncRunner
    ) -> None:
        """Grant to one of two children of a task that locked in synchronous code before them."""
        a = tasks.actor()
        other = self.lock(tasks.name("before"))

        def once() -> None:
            with other:
                pass

        async def parent(name: str, *, reentrant: bool) -> list[Lease | None]:
            lock = self.lock(name, reentrant=reentrant)

            async def child() -> Lease | None:
                return await sync_to_async(lock.acquire, thread_sensitive=True)(wait=0)

            await sync_to_async(once, thread_sensitive=True)()
            return list(await asyncio.gather(child(), child()))

        for reentrant in (False, True):
            name = tasks.name(str(reentrant))
            leases = await a.run(partial(parent, name, reentrant=reentrant))
            assert [lease is not None for lease in leases].count(True) == 1
            for lease in filter(None, leases):
                await a.run(sync_to_async(lease.release, thread_sensitive=True))

    @needs("force_releases")
    async def test_a_forced_lock_is_not_held_already(self, runner: Runner) -> None:
        """Ask the store before saying so: it may have freed the lock behind our back."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        for reentrant in (False, True):
            name = runner.name(str(reentrant))
            lock = self.lock(name, reentrant=reentrant)
            stale = await a.take(lock)
            await b.force(backend, name)
            lease = await a.take(lock)
            self.newer(lease, than=stale)
            assert stale.lost
            with pytest.raises(LeaseLostError):
                await a.release(stale)
            lease.check()
            assert await b.is_refused(lock)
            await b.force(backend, name)
            theirs = await b.take(lock)
            assert await a.is_refused(lock)
            await b.release(theirs)

    async def test_an_expired_lock_is_not_held_already(self, runner: Runner) -> None:
        """Take a lock again whose former lease ran out."""
        a = runner.actor()
        name = runner.name()
        lock = self.lock(name, ttl=self.short, renew=False)
        late = await a.take(lock)
        await asyncio.sleep(late.remaining() + 0.01)
        lease = await a.take(self.lock(name), wait=self.waits_out(self.short))
        assert late.lost
        self.newer(lease, than=late)
        await a.release(lease)

    @needs("own_processes")
    async def test_a_forked_child_holds_nothing(self, runner: Runner) -> None:
        """Refuse the parent's lease to a forked child, and leave it to the parent."""
        name = runner.name()
        async with Process(runner.kind, self.alias) as process:
            token = await process.acquire(name, reentrant=True, ttl=20)
            assert token is not None
            child = await process.ask("fork", name=name)
            acquired = child.pop("acquire")
            assert set(child.values()) == {"LeaseLostError"}
            # What lives in a process's memory, a child has of its own.
            assert acquired == ("granted" if self.backend().scope == "process" else "refused")
            assert await process.acquire(name, reentrant=True) == token  # the parent still holds
            await process.release(name)
            await process.release(name)
