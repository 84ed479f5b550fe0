"""11 and 12. What `held()` shows, to whom; and whose clock counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from unittest import mock

import pytest

from .... import LeaseLostError, LockBackendError, lock
from ....backends.base import BaseLockBackend
from ...taps import failing
from ...worlds import Actor, World, eventually
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Visible"]

HOUR = 3600


class Visible(ContractBase):
    """Looking at locks."""

    @needs("shows_holders")
    async def test_held_shows_holder_and_metadata(self, world: World) -> None:
        """Show who holds what, since when, until when, under which token, and why."""
        a, b = world.actor(), world.actor()
        metadata = {"why": "tést", "rows": [1, 2], "deep": {"a": None}}
        name = world.name()
        lock = self.lock(name, metadata=metadata)
        lease = await a.take(lock)
        (info,) = await b.held(self.backend(), world.prefix)
        assert info.name == name
        assert info.fencing_token == self.token(lease)
        assert info.metadata == metadata
        assert info.holder.pid == os.getpid()
        assert info.holder.host
        assert info.holder.thread
        assert bool(info.holder.task) == (world.kind == "async")
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
        assert await b.held(self.backend(), world.prefix) == []

    @needs("shows_holders")
    async def test_held_shows_the_holder_and_not_who_was_refused(self, world: World) -> None:
        """Keep what stands beside a lock when others ask for it; replace it with its holder."""
        a, b, c = world.actor(), world.actor(), world.actor()
        name = world.name()
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
    async def test_another_process_sees_and_breaks_it(self, world: World) -> None:
        """Show a lock to every process, and let each force its release."""
        a, backend = world.actor(), self.backend()
        name = world.name()
        lock = self.lock(name, metadata={"why": "seen"})
        async with self.process(world) as process:
            lease = await a.take(lock)
            wanted = [name, self.token(lease), os.getpid(), {"why": "seen"}]
            assert await process.ask("see", name=name) == wanted

            async def shown() -> bool:
                return bool(await process.ask("held", prefix=name) == [wanted])

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
    async def test_held_shows_every_lock_and_no_other(self, world: World) -> None:
        """Show every lock that is held now, and none that was released or has run out."""
        a, b = world.actor(), world.actor()
        leases = {}
        for number in range(30):
            name = world.name(str(number))
            leases[name] = await a.take(self.lock(name, renew=False))
        assert await self._names(b, self.backend(), world.prefix) == sorted(leases)
        for name in [world.name(str(number)) for number in range(0, 30, 2)]:
            await a.release(leases.pop(name))
        await a.renew(leases[world.name("1")], self.short)
        await b.release(await b.take(self.lock(world.name("1")), wait=self.ends_within(self.short)))
        leases.pop(world.name("1"))
        assert await self._names(b, self.backend(), world.prefix) == sorted(leases)
        for lease in leases.values():
            await a.release(lease)

    @needs("shows_holders")
    async def test_held_takes_its_prefix_literally(self, world: World) -> None:
        """Compare the beginning of names letter by letter, whatever is a wildcard to the store."""
        a = world.actor()
        backend = self.backend()
        tails = ("50%_a", "50xya", "50%_b", "a*b", "axb", "A*b", "a", "a?", "[a]", "é", "\\x")
        names = [world.name(tail) for tail in tails]
        leases = [await a.take(self.lock(name)) for name in names]
        for tail in (*tails, "50%_", "50", "nothing", ""):
            prefix = world.name(tail)
            expected = sorted(name for name in names if name.startswith(prefix))
            assert await self._names(a, backend, prefix) == expected
        for lease in leases:
            await a.release(lease)

    @needs("shows_holders", "force_releases")
    async def test_held_shows_the_aliass_own(
        self, world: World, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Leave out what another alias holds in the same store under another PREFIX."""
        a = world.actor()
        other = twins(world.prefix)
        name = world.name()
        mine = await a.take(self.lock(name))
        theirs = await a.take(lock(name, using=other.alias))
        for backend, lease in ((self.backend(), mine), (other, theirs)):
            shown = await a.held(backend, world.prefix)
            assert [info.fencing_token for info in shown] == [self.token(lease)]
        await a.force(other, name)
        mine.check()
        await a.renew(mine)
        assert await a.held(other) == []
        await a.release(mine)

    async def test_a_store_that_is_down_shows_nothing(self, world: World) -> None:
        """Raise LockBackendError, and not the error of the store's driver."""
        a = world.actor()
        backend = self.backend()
        with failing(backend, "scan", "inspect"):
            if self.has("shows_holders"):
                with pytest.raises(LockBackendError):
                    await a.held(backend)
            with pytest.raises(LockBackendError):
                await a.locked(self.lock(world.name()))
            if self.has("force_releases"):
                with pytest.raises(LockBackendError):
                    await a.force(backend, world.name())

    @needs("shows_holders", "counts_waiters")
    async def test_held_counts_the_waiters(self, world: World) -> None:
        """Show how many wait."""
        a, backend = world.actor(), self.backend()
        name = world.name()
        mine, first, second = (self.claim(name) for _ in range(3))
        for claim, waiters in ((mine, 0), (first, 1), (second, 2), (second, 2)):
            await a.call(backend, "try_acquire", claim, 1.0)
            (info,) = await a.held(backend, name)
            assert info.waiters == waiters
        for claim in (first, second, mine):
            await a.call(backend, "release", claim)

    @needs("store_clock")
    async def test_a_clients_clock_decides_nothing(self, world: World) -> None:
        """Judge expiry by the store's clock when that of this machine is an hour off."""
        a, b = world.actor(), world.actor()
        now, now_ns = time.time, time.time_ns
        for skew in (-HOUR, HOUR):
            name = world.name(f"brief{skew}")
            held, brief = self.lock(world.name(f"held{skew}")), self.lock(name)
            lease = await a.take(held)
            late = await a.take(self.lock(name, ttl=self.short, renew=False))
            with (
                mock.patch.object(time, "time", lambda skew=skew: now() + skew),
                mock.patch.object(time, "time_ns", lambda skew=skew: now_ns() + skew * 10**9),
            ):
                assert await b.acquire(held, wait=0) is None
                theirs = await b.take(brief, wait=self.ends_within(self.short))
                assert late.lost
                self.newer(theirs, than=late)
                await b.release(theirs)
                # And what was taken while the clock was off holds for the others.
                off = await b.take(brief)
            assert await a.acquire(brief, wait=0) is None
            await a.renew(lease)
            await b.release(off)
            await a.release(lease)

    @applies_to_all
    async def test_looking_at_what_nobody_ever_held(self, world: World) -> None:
        """Show nothing of a name that was never used."""
        a = world.actor()
        assert not await a.locked(self.lock(world.name()))
        assert await a.call(self.backend(), "inspect", world.name()) is None
        assert await self.held_names(a, world) == []

    async def _names(self, actor: Actor, backend: BaseLockBackend, prefix: str) -> list[str]:
        return sorted([info.name for info in await actor.held(backend, prefix)])
