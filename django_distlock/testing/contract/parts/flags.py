"""A flag that is False is held to that too, so that none can hide a failure."""

from __future__ import annotations

import threading
import time

import pytest
from asgiref.sync import sync_to_async

from .... import Lease, UnsupportedOperationError
from ....core.values import Grant, Holder, Refusal
from ...runners import AsyncRunner, Runner
from ..base import ContractBase, lacks, needs

__all__ = ["Flags"]


class Flags(ContractBase):
    """What a backend says that it cannot do."""

    @lacks("exclusive")
    async def test_it_excludes_nobody(self, runner: Runner) -> None:
        """Grant a name to all, and show no holder."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        leases = [await a.take(lock), await b.take(lock)]
        assert not await a.locked(lock)
        if self.has("shows_holders"):
            assert await a.held(self.backend()) == []
        for actor, lease in zip((a, b), leases, strict=True):
            assert isinstance(lease, Lease)
            await actor.release(lease)

    @lacks("supports_fencing")
    async def test_it_has_no_fencing_tokens(self, runner: Runner) -> None:
        """Raise when the token is asked for, rather than give one that may be wrong."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name()))
        with pytest.raises(UnsupportedOperationError):
            _ = lease.fencing_token
        await a.release(lease)

        # It can be detached without a token, too.
        again = await a.attach(await a.do((await a.take(self.lock(runner.name()))).detach))
        await a.release(again)

    @lacks("shows_holders")
    async def test_it_does_not_show_who_holds(self, runner: Runner) -> None:
        """Tell of a lock whether it is held, and leave out what is not known; list nothing."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        name = runner.name()
        lock = self.lock(name, metadata={"why": "hidden"})
        assert not await b.locked(lock)
        lease = await a.take(lock)
        assert await b.locked(lock)
        info = await b.call(backend, "inspect", name)
        assert (info.name, info.holder, info.metadata) == (name, Holder(), {})
        with pytest.raises(UnsupportedOperationError) as caught:
            await b.held(backend)
        assert caught.value.alias == self.alias
        await a.release(lease)
        assert not await b.locked(lock)

    @lacks("force_releases")
    async def test_it_cannot_be_freed_by_force(self, runner: Runner) -> None:
        """Say so, and spare the holder."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name))
        with pytest.raises(UnsupportedOperationError) as caught:
            await b.force(self.backend(), name)
        assert caught.value.name == name
        await a.renew(lease)
        await a.release(lease)

    @lacks("fair")
    async def test_the_last_to_come_may_be_first(self, runner: Runner) -> None:
        """Grant to whoever asks first after the release, though another has asked before."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        holder, early, late = self.claim(name), self.claim(name), self.claim(name)
        assert isinstance(await a.call(backend, "try_acquire", holder, 20.0), Grant)
        assert isinstance(await a.call(backend, "try_acquire", early, 20.0), Refusal)
        await a.call(backend, "release", holder)
        assert isinstance(await a.call(backend, "try_acquire", late, 20.0), Grant)
        await a.call(backend, "release", late)
        await a.call(backend, "release", early)

    @lacks("queues")
    async def test_a_refused_attempt_leaves_nothing(self, runner: Runner) -> None:
        """Need no withdrawal after a refusal: no claim stands in a queue."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        holder, refused = self.claim(name), self.claim(name)
        await a.call(backend, "try_acquire", holder, 20.0)
        assert isinstance(await a.call(backend, "try_acquire", refused, 20.0), Refusal)
        assert await a.call(backend, "release", holder) is True
        assert await a.call(backend, "release", refused) is False
        assert await a.call(backend, "inspect", name) is None

    @lacks("notifies")
    async def test_a_pause_sleeps_on(self, runner: Runner) -> None:
        """Pause for the time given, also when the lock is freed meanwhile."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        name = runner.name()
        holder, waiter = self.claim(name), self.claim(name)
        await a.call(backend, "try_acquire", holder, 20.0)
        await a.call(backend, "try_acquire", waiter, 20.0)
        await b.call(backend, "release", holder)
        started = time.monotonic()
        await a.call(backend, "pause", waiter, 0.101)  # uvloop counts whole milliseconds
        assert time.monotonic() - started >= 0.1
        await a.call(backend, "release", waiter)

    @lacks("counts_waiters")
    async def test_waiters_are_not_counted(self, runner: Runner) -> None:
        """Say that the number is not known, rather than a number."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        holder, waiter = self.claim(name), self.claim(name)
        await a.call(backend, "try_acquire", holder, 20.0)
        await a.call(backend, "try_acquire", waiter, 20.0)
        info = await a.call(backend, "inspect", name)
        assert info.waiters is None
        for claim in (waiter, holder):
            await a.call(backend, "release", claim)

    @lacks("cleans")
    async def test_it_cannot_be_cleaned(self, runner: Runner) -> None:
        """Raise, rather than say that there was nothing to clean."""
        a = runner.actor()
        for dry_run in (True, False):
            with pytest.raises(UnsupportedOperationError) as caught:
                await a.clean(self.backend(), older_than=60, dry_run=dry_run)
            assert caught.value.alias == self.alias

    @lacks("native_async")
    async def test_the_event_loop_is_not_blocked(self, tasks: AsyncRunner) -> None:
        """Make blocking calls to the store off the event loop's thread."""
        backend = self.backend()
        assert not hasattr(backend, "atry_acquire")
        assert await backend.off_loop(threading.get_ident) != threading.get_ident()

    @needs("thread_sensitive", exclusive=False)
    async def test_the_database_thread_is_used(self, tasks: AsyncRunner) -> None:
        """Make blocking calls where Django's database connections are."""
        backend = self.backend()
        there = await sync_to_async(threading.get_ident, thread_sensitive=True)()
        assert await backend.off_loop(threading.get_ident) == there

    @lacks("thread_sensitive")
    async def test_the_database_thread_is_left_alone(self, tasks: AsyncRunner) -> None:
        """Keep off the one thread that all synchronous code of a request shares."""
        backend = self.backend()
        there = await sync_to_async(threading.get_ident, thread_sensitive=True)()
        assert await backend.off_loop(threading.get_ident) != there

    @needs("own_processes", exclusive=False)
    async def test_the_scope_is_as_said(self, runner: Runner) -> None:
        """Exclude other processes if the scope is more than the process, else not."""
        a = runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name))
        async with self.process(runner) as process:
            token = await process.acquire(name)
            assert (token is None) == self.has("processes")
            if token is not None:
                await process.release(name)
        await a.release(lease)
