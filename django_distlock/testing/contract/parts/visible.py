"""11 and 12. What `held()` shows, to whom; and whose clock counts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from unittest import mock

import pytest

from .... import LeaseLostError, LockBackendError, lock
from ....backends.base import BaseLockBackend
from ...runners import Actor, Runner, eventually
from ...taps import failing
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Visible"]

HOUR = 3600


class Visible(ContractBase):
    """Looking at locks."""

    @needs("shows_holders")
    async def test_held_shows_holder_and_metadata(self, runner: Runner) -> None:
        """Show who holds what, since when, until when, under which token, and why."""
        a, b = runner.actor(), runner.actor()
        metadata = {"why": "tést", "rows": [1, 2], "deep": {"a": None}}
        name = runner.name()
        lock = self.lock(name, metadata=metadata)
        lease = await a.take(lock)
        (info,) = await b.held(self.backend(), runner.prefix)
        assert info.name == name
        assert info.fencing_token == self.token(lease)
        assert info.metadata == metadata
        assert info.holder.pid == os.getpid()
        assert info.holder.host
        assert info.holder.thread
        assert bool(info.holder.task) == (runner.kind == "async")
        assert info.holder.site
        assert info.acquired_at is not None
        assert info.acquired_at.tzinfo is not None
        if info.expires_at is not None:
            assert 0 < (info.expires_at - info.acquired_at).total_seconds() <= HOUR
        assert info.owner not in repr(info)
        seen = await b.call(self.backend(), "inspect", name)
        assert (seen.name, seen.holder, seen.metadata) == (info.name, info.holder, info.metadata)
        assert (seen.fencing_token, seen.owner) == (info.fencing_token, info.owner)
        await a.release(lease)
        assert await b.held(self.backend(), runner.prefix) == []

    @needs("shows_holders")
    async def test_held_shows_the_holder_and_not_who_was_refused(self, runner: Runner) -> None:
        """Keep what stands beside a lock when others ask for it; replace it with its holder."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        mine, theirs = (self.lock(name, metadata={"who": who}) for who in "ab")

        async def shown() -> tuple[object, object]:
            (info,) = await c.held(self.backend(), name)
            return info.metadata["who"], info.fencing_token

        lease = await a.take(mine)
        assert await shown() == ("a", self.token(lease))
        for wait in (0, 0.05):
            assert await b.acquire(theirs, wait=wait) is None
        assert await shown() == ("a", self.token(lease))
        await a.release(lease)
        lease = await b.take(theirs)
        assert await shown() == ("b", self.token(lease))
        await b.release(lease)

    @needs("shows_holders", "force_releases", "processes")
    async def test_another_process_sees_and_breaks_it(self, runner: Runner) -> None:
        """Show a lock to every process, and let each force its release."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        lock = self.lock(name, metadata={"why": "seen"})
        async with self.process(runner) as process:
            lease = await a.take(lock)
            wanted = [name, self.token(lease), os.getpid(), {"why": "seen"}]

            async def shown() -> bool:
                seen = await process.ask("see", name=name)
                return bool([seen] == await process.ask("held", prefix=name) == [wanted])

            await eventually(shown, self.shown)
            await process.ask("force", name=name)
            with pytest.raises(LeaseLostError):
                await a.renew(lease)
            assert await process.ask("see", name=name) is None
            # And the other way round.
            assert await process.acquire(name, ttl=20) is not None

            async def told() -> bool:
                return [info.holder.pid for info in await a.held(backend, name)] == [process.pid]

            await eventually(told, self.shown)
            await a.force(backend, name)
            with pytest.raises(LeaseLostError):
                await process.release(name)
            await a.release(await a.take(lock))

    @needs("shows_holders")
    async def test_held_shows_every_lock_and_no_other(self, runner: Runner) -> None:
        """Show every lock that is held now, and none that was released or has run out."""
        a, b = runner.actor(), runner.actor()
        leases = {}
        for number in range(30):
            name = runner.name(str(number))
            leases[name] = await a.take(self.lock(name, ttl=120, renew=False))
        assert await self._names(b, self.backend(), runner.prefix) == sorted(leases)
        for name in [runner.name(str(number)) for number in range(0, 30, 2)]:
            await a.release(leases.pop(name))
        await a.renew(leases[runner.name("1")], self.short)
        await b.release(await b.take(self.lock(runner.name("1")), wait=self.waits_out(self.short)))
        leases.pop(runner.name("1"))
        assert await self._names(b, self.backend(), runner.prefix) == sorted(leases)
        for lease in leases.values():
            await a.release(lease)

    @needs("shows_holders")
    async def test_held_takes_its_prefix_literally(self, runner: Runner) -> None:
        """Compare the beginning of names letter by letter, whatever is a wildcard to the store."""
        a = runner.actor()
        backend = self.backend()
        tails = ("50%_a", "50xya", "50%_b", "a*b", "axb", "A*b", "a", "a?", "[a]", "é", "\\x")
        names = [runner.name(tail) for tail in tails]
        leases = [await a.take(self.lock(name)) for name in names]
        for tail in (*tails, "50%_", "50", "nothing", ""):
            prefix = runner.name(tail)
            expected = sorted(name for name in names if name.startswith(prefix))
            assert await self._names(a, backend, prefix) == expected
        for lease in leases:
            await a.release(lease)

    @needs("shows_holders", "force_releases")
    async def test_held_shows_the_aliass_own(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Leave out what another alias holds in the same store under another PREFIX."""
        a = runner.actor()
        other = twins(runner.prefix)
        name = runner.name()
        mine = await a.take(self.lock(name))
        theirs = await a.take(lock(name, using=other.alias))
        for backend, lease in ((self.backend(), mine), (other, theirs)):
            shown = await a.held(backend, runner.prefix)
            assert [info.fencing_token for info in shown] == [self.token(lease)]
        await a.force(other, name)
        mine.check()
        await a.renew(mine)
        assert await a.held(other) == []
        await a.release(mine)

    async def test_a_store_that_is_down_shows_nothing(self, runner: Runner) -> None:
        """Raise LockBackendError, and not the error of the store's driver."""
        a = runner.actor()
        backend = self.backend()
        with failing(backend, "scan", "inspect"):
            if self.has("shows_holders"):
                with pytest.raises(LockBackendError):
                    await a.held(backend)
            with pytest.raises(LockBackendError):
                await a.locked(self.lock(runner.name()))
            if self.has("force_releases"):
                with pytest.raises(LockBackendError):
                    await a.force(backend, runner.name())

    @needs("shows_holders", "counts_waiters")
    async def test_held_counts_the_waiters(self, runner: Runner) -> None:
        """Show how many wait."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        holder = self.claim(name)
        waiters = [(runner.actor(), self.claim(name)) for _ in range(2)]
        await a.call(backend, "try_acquire", holder, 20.0)
        for number in (0, 1, 2, 2):

            async def counted(number: int = number) -> bool:
                # A waiter that does not ask again loses its place in the end.
                asking = (b.call(backend, "try_acquire", c, 20.0) for b, c in waiters[:number])
                await asyncio.gather(*asking)
                (info,) = await a.held(backend, name)
                return bool(info.waiters == number)

            await eventually(counted, 20.0)
        for claim in (*(claim for _, claim in waiters), holder):
            await a.call(backend, "release", claim)

    @needs("store_clock")
    async def test_a_clients_clock_decides_nothing(self, runner: Runner) -> None:
        """Judge expiry by the store's clock when that of this machine is an hour off."""
        a, b = runner.actor(), runner.actor()
        now, now_ns = time.time, time.time_ns
        for skew in (-HOUR, HOUR):
            name = runner.name(f"brief{skew}")
            held, brief = self.lock(runner.name(f"held{skew}")), self.lock(name)
            lease = await a.take(held)
            late = await a.take(self.lock(name, ttl=self.short, renew=False))
            with (
                mock.patch.object(time, "time", lambda skew=skew: now() + skew),
                mock.patch.object(time, "time_ns", lambda skew=skew: now_ns() + skew * 10**9),
            ):
                assert await b.is_refused(held)
                theirs = await b.take(brief, wait=self.waits_out(self.short))
                assert late.lost
                self.newer(theirs, than=late)
                await b.release(theirs)
                # And what was taken while the clock was off holds for the others.
                off = await b.take(brief)
            assert await a.is_refused(brief)
            await a.renew(lease)
            await b.release(off)
            await a.release(lease)

    @applies_to_all
    async def test_looking_at_what_nobody_ever_held(self, runner: Runner) -> None:
        """Show nothing of a name that was never used."""
        a = runner.actor()
        assert not await a.locked(self.lock(runner.name()))
        assert await a.call(self.backend(), "inspect", runner.name()) is None
        assert await self.held_names(a, runner) == []

    async def _names(self, actor: Actor, backend: BaseLockBackend, prefix: str) -> list[str]:
        return sorted([info.name for info in await actor.held(backend, prefix)])
