"""2. Only the owner releases or renews, compared in the store in the same step."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from .... import Lease, LeaseLostError, LockNotHeldError
from ....core.blocks import Guard
from ....core.flow import Call
from ....core.values import Grant, Refusal
from ...runners import Runner
from ...taps import tap
from ..base import ContractBase, applies_to_all, needs, only

__all__ = ["Ownership"]


class Ownership(ContractBase):
    """Symmetry: what one took, no other gives back."""

    @applies_to_all
    async def test_releasing_twice_is_an_error(self, runner: Runner) -> None:
        """Refuse the second release, and everything else that needs the lease."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name()))
        await a.release(lease)
        for again in (a.release(lease), a.renew(lease), a.do(lease.check), a.do(lease.detach)):
            with pytest.raises(LockNotHeldError) as refused:
                await again
            assert not isinstance(refused.value, LeaseLostError)
            assert refused.value.name == lease.name

    @applies_to_all
    async def test_a_released_lease_begins_no_block(self, runner: Runner) -> None:
        """Refuse a block whose body would run without the lock."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name()))
        block = cast("Guard[Lease]", lease)  # entered as a lock is
        await a.enter(block)
        await a.leave(block)
        with pytest.raises(LockNotHeldError):
            await a.enter(block)

    async def test_a_release_while_its_holder_acquires_once_more(self, runner: Runner) -> None:
        """Keep the lock for the nested acquisition that came between two steps of a release."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        lock = self.lock(runner.name(), reentrant=True)
        lease = await a.take(lock)
        steps = lease._release()
        first = next(steps)  # the look for open transactions, or the request
        await b.drive(only(first))
        if isinstance(first, Call):
            return  # it is sent already: the nested one comes too late
        nested = await a.take(lock)
        await b.drive(steps)
        assert await c.is_refused(lock)
        nested.check()
        await a.release(nested)
        await c.release(await c.take(lock))

    async def test_releasing_twice_spares_the_next_holder(self, runner: Runner) -> None:
        """Leave the next holder's lock alone."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        await a.release(lease)
        theirs = await b.take(lock)
        with pytest.raises(LockNotHeldError):
            await a.release(lease)
        assert await c.is_refused(lock)
        await b.release(theirs)

    async def test_a_stranger_cannot_release_or_renew(self, runner: Runner) -> None:
        """Compare the owner in the store: held or not, only the owner gets a yes."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        mine, stranger = self.claim(name), self.claim(name)
        for verb in ("release", "renew"):
            assert await a.call(backend, verb, stranger) is False
        assert isinstance(await a.call(backend, "try_acquire", mine, 20.0), Grant)
        for verb in ("release", "renew"):
            assert await a.call(backend, verb, stranger) is False
        for claims in ([], [stranger], [mine], [stranger, mine], [mine, stranger]):
            answers = [claim is mine for claim in claims]
            assert await a.call(backend, "renew_many", claims) == answers
        assert isinstance(await a.call(backend, "try_acquire", stranger, 20.0), Refusal)
        # Else a store with a queue would grant it what is released next.
        assert await a.call(backend, "release", stranger) is False
        assert await a.call(backend, "renew", mine) is True
        assert await a.call(backend, "release", mine) is True
        for verb in ("release", "renew"):
            assert await a.call(backend, verb, mine) is False

    async def test_a_batch_is_answered_one_by_one(self, runner: Runner) -> None:
        """Renew many claims of different ttls, some of them lost, and say which is which."""
        a, backend = runner.actor(), self.backend()
        claims = [self.claim(runner.name(str(n)), ttl=20.0 + n % 3) for n in range(12)]
        for claim in claims:
            assert isinstance(await a.call(backend, "try_acquire", claim, 20.0), Grant)
        lost = claims[::5]
        for claim in lost:
            await a.call(backend, "release", claim)
        taken = self.claim(lost[0].name)
        await a.call(backend, "try_acquire", taken, 20.0)
        answers = await a.call(backend, "renew_many", claims)
        assert answers == [claim not in lost for claim in claims]
        for claim in [taken, *claims]:
            assert await a.call(backend, "release", claim) is (claim not in lost)

    async def test_an_expired_claim_is_nobodys(self, runner: Runner) -> None:
        """Refuse to renew or release what has expired, whether or not it was taken since."""
        a, backend = runner.actor(), self.backend()
        for taken in (False, True):
            name = runner.name(str(taken))
            late, next_one = self.claim(name, self.short), self.claim(name)
            assert isinstance(await a.call(backend, "try_acquire", late, 20.0), Grant)
            await self.nobody_holds(a, name, within=self.ends_within(self.short))
            if taken:
                assert isinstance(await a.call(backend, "try_acquire", next_one, 20.0), Grant)
            for verb in ("renew", "release"):
                assert await a.call(backend, verb, late) is False
            if taken:
                assert isinstance(await a.call(backend, "try_acquire", late, 20.0), Refusal)
                assert await a.call(backend, "release", next_one) is True

    async def test_a_late_holder_learns_of_it(self, runner: Runner) -> None:
        """Raise when a lease is released or renewed after its time, and spare the next holder."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        brief = self.lock(name, ttl=self.short, renew=False)
        late = await a.take(brief)
        lease = await b.take(lock, wait=self.waits_out(self.short))
        assert late.remaining() == 0
        for call in (a.renew(late), a.renew(late, 20), a.do(late.check), a.release(late)):
            with pytest.raises(LeaseLostError):
                await call
        assert await c.is_refused(lock)
        await b.release(lease)

    @needs("force_releases")
    async def test_a_forced_holder_spares_its_successor(self, runner: Runner) -> None:
        """Refuse a holder who does not know yet that its lock was forced and taken by another."""
        a, b, c, backend = runner.actor(), runner.actor(), runner.actor(), self.backend()
        for what in ("release", "renew"):
            name = runner.name(what)
            lock = self.lock(name)
            stale = await a.take(lock)
            await c.force(backend, name)
            lease = await b.take(lock)
            with pytest.raises(LeaseLostError) as lost:
                await (a.release(stale) if what == "release" else a.renew(stale))
            assert lost.value.name == name
            assert await c.is_refused(lock)
            lease.check()
            await b.renew(lease)
            await b.release(lease)

    async def test_an_owner_asking_twice_is_granted_once(self, runner: Runner) -> None:
        """Answer a repeated request with the same token; one release undoes it."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        claim, other = self.claim(name), self.claim(name)
        first = await a.call(backend, "try_acquire", claim, 20.0)
        before = await a.call(backend, "inspect", name)
        await asyncio.sleep(0.05)
        again = await a.call(backend, "try_acquire", claim, 20.0)
        assert self.token(first) == self.token(again)
        after = await a.call(backend, "inspect", name)
        if before.acquired_at is not None:
            assert abs(after.acquired_at - before.acquired_at) < timedelta(milliseconds=10)
        if after.expires_at is not None:
            assert after.expires_at > before.expires_at  # the ttl starts again
        assert isinstance(await a.call(backend, "try_acquire", other, 20.0), Refusal)
        assert await a.call(backend, "release", claim) is True
        assert isinstance(await a.call(backend, "try_acquire", other, 20.0), Grant)
        assert await a.call(backend, "release", other) is True

    async def test_a_lease_may_be_released_by_another_actor(self, runner: Runner) -> None:
        """Let a lease travel: it is the lease that frees, not the thread or task."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        await b.renew(lease)
        await b.release(lease)
        await a.release(await a.take(lock))  # nor does its taker hold it in any way

    async def test_two_who_release_at_once(self, runner: Runner) -> None:
        """Let one of them do it, and tell the other."""
        a, b = runner.actor(), runner.actor()
        for turn in range(3):
            lock = self.lock(runner.name(str(turn)))
            lease = await a.take(lock)
            ends = await asyncio.gather(a.release(lease), b.release(lease), return_exceptions=True)
            errors = [end for end in ends if end is not None]
            assert len(errors) == 1
            assert isinstance(errors[0], LockNotHeldError)
            await b.release(await b.take(lock))

    @needs("shows_holders", "force_releases", "supports_fencing")
    async def test_forcing_compares_the_token(self, runner: Runner) -> None:
        """Break the grant that was seen, never a newer one."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        name = runner.name()
        lock = self.lock(name, metadata={"why": "test"})
        with pytest.raises(LockNotHeldError):
            await b.force(backend, name)
        lease = await a.take(lock)
        old = lease.fencing_token
        with pytest.raises(LockNotHeldError):
            await b.force(backend, name, old - 1)
        lease.check()
        await a.release(lease)
        lease = await a.take(lock)
        with pytest.raises(LockNotHeldError):
            await b.force(backend, name, old)
        await a.renew(lease)
        info = await b.force(backend, name, self.token(lease))
        assert (info.name, info.fencing_token) == (name, self.token(lease))
        assert info.metadata == {"why": "test"}
        with pytest.raises(LeaseLostError):
            await a.release(lease)
        await b.release(await b.take(lock))

    @needs("force_releases")
    async def test_forcing_compares_the_owner_in_the_store(self, runner: Runner) -> None:
        """Spare a newer holder also when it came after the one to be broken was seen."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        seen, newer = self.claim(name), self.claim(name)

        def change_hands() -> None:
            assert backend.release(seen)
            assert isinstance(backend.try_acquire(newer, 20.0), Grant)

        await a.call(backend, "try_acquire", seen, 20.0)
        with tap(backend, "inspect", after=change_hands), pytest.raises(LockNotHeldError):
            await a.force(backend, name)
        assert await a.call(backend, "renew", newer) is True
        assert await a.call(backend, "release", newer) is True
