"""8. The store did what it was asked, and its answer never came; or it was not even asked."""

from __future__ import annotations

import asyncio
import time
from unittest import mock

import pytest

from .... import LockBackendError, LockNotHeldError
from ....core import flow
from ....core.values import Grant
from ...runners import AsyncRunner, Runner
from ...taps import failing, tap
from ..base import ContractBase

__all__ = ["Answers"]

STILL = 1.3  # seconds; an attempt that may not wait has one for its answer
SOON = 20.0  # seconds in which what could not be withdrawn at once is withdrawn


class Answers(ContractBase):
    """Lost answers, and errors of the store."""

    async def _freed_soon(self, runner: Runner, name: str) -> None:
        """Fail unless no process holds the lock in a moment, and it can be had then."""
        looker = runner.actor()
        await self.nobody_holds(looker, name, within=SOON)
        await looker.release(await looker.take(self.lock(name)))

    async def test_the_answer_to_acquire_is_lost(self, runner: Runner) -> None:
        """Raise, for the lock cannot be counted on, and give back what was granted."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        lock = self.lock(name)
        for wait in (0, 0.3):
            with (
                failing(backend, "try_acquire", answered=True),
                pytest.raises(LockBackendError) as failed,
            ):
                await a.acquire(lock, wait=wait)
            cause = failed.value.__cause__
            assert "was cut" in str(cause)
            assert (failed.value.name, failed.value.alias) == (name, self.alias)
            await self._freed_soon(runner, name)

    async def test_the_answer_came_while_the_process_stood_still(self, tasks: AsyncRunner) -> None:
        """Return it, though the time for it is over when the event loop goes on."""
        lock = self.lock(tasks.name())
        async with lock:  # its connection is there
            pass
        for rounds in (1, 4):
            asking = asyncio.ensure_future(lock.aacquire(wait=0))
            for _ in range(rounds):
                await asyncio.sleep(0)
            time.sleep(STILL)
            lease = await asking
            assert lease is not None
            await lease.arelease()

    async def test_the_store_stays_away_for_a_while(self, runner: Runner) -> None:
        """Withdraw the unanswered attempt as soon as the store is back."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        lock = self.lock(name)
        with failing(backend, "release", of=name, times=3):
            with (
                failing(backend, "try_acquire", answered=True),
                pytest.raises(LockBackendError),
            ):
                await a.enter(lock)
            await self._freed_soon(runner, name)

    async def test_a_request_that_comes_late(self, runner: Runner) -> None:
        """Withdraw an unanswered request also when the store reads it after the withdrawal.

        As a server does that hung: it goes on with what stands in the buffers of its connections,
        in any order.
        """
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        name = runner.name()
        with tap(backend, "release", of=name) as withdrawals:
            with (
                failing(backend, "try_acquire"),
                tap(backend, "try_acquire") as asked,
                pytest.raises(LockBackendError),
            ):
                await a.acquire(self.lock(name), wait=0)
            await withdrawals.came()
            assert isinstance(await b.call(backend, "try_acquire", *asked.args), Grant)
            await self.nobody_holds(b, name, within=SOON)

    async def test_nothing_was_granted_by_a_store_that_failed(self, runner: Runner) -> None:
        """Raise when the request never reached the store, and hurt no holder."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        lock = self.lock(runner.name())
        lease = await b.take(lock)
        with failing(backend, "try_acquire"), pytest.raises(LockBackendError):
            await a.acquire(lock, wait=5)
        await asyncio.sleep(0.1)  # the withdrawal in the background
        await b.renew(lease)
        await b.release(lease)

    async def test_a_conflict_after_the_release(self, runner: Runner) -> None:
        """Tell of no loss when the store asks for a release again that it has carried out."""
        a, backend = runner.actor(), self.backend()
        lock = self.lock(runner.name())
        for _ in range(2):
            lease = await a.take(lock)
            with failing(backend, "release", of=lease.name, answered=True, times=1, conflict=True):
                await a.release(lease)
            assert not lease.lost
            await a.enter(lock)
            with failing(backend, "release", of=lease.name, answered=True, times=1, conflict=True):
                await a.leave(lock)

    async def test_a_conflict_after_the_grant(self, runner: Runner) -> None:
        """Ask again when the store says so; what the first request got is ours."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        for wait in (0, 5):
            name = runner.name(str(wait))
            lock = self.lock(name)
            with (
                tap(backend, "try_acquire") as calls,
                failing(backend, "try_acquire", answered=True, times=1, conflict=True),
                mock.patch.object(flow, "LATE", 60.0),  # however busy the machine is
            ):
                lease = await a.take(lock, wait=wait)
            assert calls.answered == 2
            assert await b.is_refused(lock)
            if self.has("shows_holders"):
                (info,) = await b.held(backend, name)
                assert info.fencing_token == self.token(lease)
            await a.release(lease)
            await self._freed_soon(runner, name)

    async def test_the_answer_to_release_is_lost(self, runner: Runner) -> None:
        """Raise, but free the lock; a repeated release then finds it done, and hurts no holder."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        with (
            failing(backend, "release", of=lease.name, answered=True),
            pytest.raises(LockBackendError),
        ):
            await a.release(lease)
        theirs = await b.take(lock)
        await a.release(lease)
        with pytest.raises(LockNotHeldError):
            await a.release(lease)
        await b.renew(theirs)
        await b.release(theirs)

    async def test_a_release_that_failed_can_be_repeated(self, runner: Runner) -> None:
        """Keep the lease when the request to free it did not reach the store."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        with failing(backend, "release", of=lease.name), pytest.raises(LockBackendError):
            await a.release(lease)
        assert await b.is_refused(lock)
        lease.check()
        await a.release(lease)
        await b.release(await b.take(lock))

    async def test_a_block_whose_release_failed(self, runner: Runner) -> None:
        """Free the lock in the background when a block could not, and let its own error win."""
        a, backend = runner.actor(), self.backend()
        for error in (None, ValueError("of the body")):
            name = runner.name(str(error))
            lock = self.lock(name)
            await a.enter(lock)
            with failing(backend, "release", of=name, times=2):
                if error is None:
                    with pytest.raises(LockBackendError):
                        await a.leave(lock)
                else:
                    await a.leave(lock, error)
                await self._freed_soon(runner, name)

    async def test_a_renewal_that_failed(self, runner: Runner) -> None:
        """Raise when a renewal got no answer, and keep the lease for what it is sure of."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        for answered in (False, True):
            lock = self.lock(runner.name(str(answered)), renew=False)
            lease = await a.take(lock)
            with failing(backend, "renew", answered=answered), pytest.raises(LockBackendError):
                await a.renew(lease, 600)
            lease.check()
            assert lease.remaining() <= 20
            assert await b.is_refused(lock)
            await a.release(lease)

    async def test_a_conflict_at_release_and_renewal(self, runner: Runner) -> None:
        """Ask again when the store had a conflict."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        with failing(backend, "renew", times=2, conflict=True):
            await a.renew(lease)
        with failing(backend, "release", of=lease.name, times=2, conflict=True):
            await a.release(lease)
        await b.release(await b.take(lock))
