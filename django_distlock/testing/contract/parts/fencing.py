"""4. Tokens rise strictly per name over every grant, whatever ended the one before."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from ...runners import Runner
from ..base import ContractBase, needs

__all__ = ["Fencing"]

MOST = 2**53  # what JavaScript, JSON readers and Lua can hold


class Fencing(ContractBase):
    """Fencing tokens."""

    @needs("supports_fencing", exclusive=False)
    async def test_tokens_rise_through_releases(self, runner: Runner) -> None:
        """Give a greater token at each grant, to the same or to another holder."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        tokens = []
        for actor in (a, a, b, a, b, b):
            lease = await actor.take(lock)
            tokens.append(lease.fencing_token)
            await actor.release(lease)
        assert all(type(token) is int and 0 < token <= MOST for token in tokens)
        assert all(before < after for before, after in pairwise(tokens))

    @needs("force_releases", "supports_fencing")
    async def test_tokens_rise_through_expiry_and_force(self, runner: Runner) -> None:
        """Give a greater token after a lease that ran out, and after one that was broken."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        expired = await a.take(self.lock(name, ttl=self.short, renew=False))
        forced = await b.take(lock, wait=self.waits_out(self.short))
        await a.force(self.backend(), name, forced.fencing_token)
        last = await a.take(lock)
        await a.release(last)
        assert expired.fencing_token < forced.fencing_token < last.fencing_token

    @needs("shows_holders", "supports_fencing")
    async def test_renewals_keep_the_token(self, runner: Runner) -> None:
        """Keep the token as long as the lease, in the lease and in the store."""
        a = runner.actor()
        lease = await a.take(self.lock(runner.name()))
        token = lease.fencing_token
        for ttl in (None, 5, 10):
            await a.renew(lease, ttl)
            (info,) = await a.held(self.backend(), lease.name)
            assert (lease.fencing_token, info.fencing_token) == (token, token)
        await a.release(lease)

    @needs("supports_fencing", "processes")
    async def test_tokens_rise_over_processes(self, runner: Runner) -> None:
        """Give a greater token whatever process asks."""
        a = runner.actor()
        name = runner.name()
        lock = self.lock(name)
        tokens = []
        async with self.process(runner) as process:
            for _ in range(2):
                lease = await a.take(lock)
                tokens.append(lease.fencing_token)
                await a.release(lease)
                token = await process.acquire(name)
                assert token is not None
                tokens.append(token)
                await process.release(name)
        assert all(before < after for before, after in pairwise(tokens))

    @needs("supports_fencing", "restart_store")
    async def test_tokens_rise_through_a_restart(self, runner: Runner) -> None:
        """Give greater tokens after the store was restarted, and go on without ado."""
        a, b = runner.actor(), runner.actor()
        held, released = self.lock(runner.name("held")), self.lock(runner.name("released"))
        lease = await b.take(held)
        before = await a.take(released)
        await a.release(before)
        await asyncio.to_thread(self.restart_store)
        after = await a.take(released, wait=20)
        assert before.fencing_token < after.fencing_token
        await a.release(after)
        # What was held is held still, or is free, but then its next token is greater.
        theirs = await a.acquire(held, wait=0)
        if theirs is None:
            await b.release(lease)
        else:
            assert theirs.fencing_token > lease.fencing_token
            await a.release(theirs)
