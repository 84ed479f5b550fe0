"""Cleaning removes what is idle only, and is not noticed by those who take locks meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from .... import InvalidLockError, Lease, LeaseLostError
from ....core.cleaning import clean
from ....core.values import Cleaned, CleanPolicy
from ...runners import Actor, Runner
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Cleaning"]

ROUNDS = 15
UNAGED = 0.0
"""So young a name may be cleaned by the primitive only: it shows what `clean` does after weeks."""


class Cleaning(ContractBase):
    """`clean` and its primitive."""

    async def clean_all(self, actor: Actor, *, dry_run: bool = False, batch: int = 500) -> Cleaned:
        """Clean everything that is not held."""
        policy = CleanPolicy(older_than=UNAGED, dry_run=dry_run, batch=batch)
        return await actor.drive(clean(self.backend(), policy, clock=self.backend().clock))

    @needs("shows_holders", "cleans")
    async def test_held_locks_are_not_cleaned(self, runner: Runner) -> None:
        """Leave what is held, for a moment or for long, renewed or not, in whatever batches."""
        a, b = runner.actor(), runner.actor()
        await self.clean_all(b)  # what others have left takes long in small batches
        held = [
            await a.take(self.lock(runner.name(f"{number}"), ttl=ttl, renew=renew))
            for number, (ttl, renew) in enumerate([(5, True), (600, False), (3600, True)] * 3)
        ]
        free = await a.take(self.lock(runner.name("free")))
        await a.release(free)
        for batch in (1, 2, 500):
            await self.clean_all(b, batch=batch)
        assert {info.name for info in await b.held(self.backend(), runner.prefix)} == {
            lease.name for lease in held
        }
        for lease in held:
            assert await b.is_refused(self.lock(lease.name))
            token = self.token(lease)
            await a.renew(lease)
            assert self.token(lease) == token
            await a.release(lease)

    @needs("force_releases", "cleans", "supports_fencing")
    async def test_tokens_rise_through_cleaning(self, runner: Runner) -> None:
        """Give a greater token after a released, an expired and a broken lease was cleaned."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock, short = self.lock(name), self.lock(name, ttl=self.short, renew=False)
        tokens = []
        for _ in range(3):
            released = await a.take(lock)
            await a.release(released)
            await self.clean_all(b)
            expired = await a.take(short)
            await self.nobody_holds(b, name, self.ends_within(self.short))
            await self.clean_all(b)
            broken = await a.take(lock)
            await b.force(self.backend(), name)
            await self.clean_all(b)
            tokens += [lease.fencing_token for lease in (released, expired, broken)]
        assert all(before < after for before, after in pairwise(tokens))

    @needs("cleans")
    async def test_who_lost_what_was_cleaned_is_told(self, runner: Runner) -> None:
        """Renew and release nothing after a lease that ran out was cleaned away."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name, ttl=self.short, renew=False))
        await self.nobody_holds(b, name, self.ends_within(self.short))
        await self.clean_all(b)
        with pytest.raises(LeaseLostError):
            await a.renew(lease)
        with pytest.raises(LeaseLostError):
            await a.release(lease)
        await b.release(await b.take(self.lock(name)))

    @needs("cleans")
    async def test_a_dry_run_removes_nothing(self, runner: Runner) -> None:
        """Count what would be removed; it is there still, and removed when it is meant."""
        a, b = runner.actor(), runner.actor()
        # What others have left, which a store may remove by itself meanwhile.
        await self.clean_all(b)
        for number in range(5):
            name = runner.name(f"{number}")
            if number % 2:
                await a.release(await a.take(self.lock(name)))
            else:
                await a.take(self.lock(name, ttl=self.short, renew=False))
                await self.nobody_holds(b, name, self.ends_within(self.short))
        first = await self.clean_all(b, dry_run=True, batch=2)
        second = await self.clean_all(b, dry_run=True)
        done = await self.clean_all(b)
        assert first.removed <= second.removed <= done.removed <= done.seen
        assert first.seen <= second.seen <= done.seen
        assert (await self.clean_all(b)).seen == done.seen - done.removed

    @needs("cleans")
    async def test_what_was_used_lately_is_left(self, runner: Runner) -> None:
        """Remove nothing that is younger than asked for: neither released nor run out."""
        a, b = runner.actor(), runner.actor()
        await b.clean(self.backend(), older_than=3600)  # what others have left here
        released = await a.take(self.lock(runner.name("released")))
        await a.release(released)
        await a.take(self.lock(runner.name("expired"), ttl=self.short, renew=False))
        await self.nobody_holds(b, runner.name("expired"), self.ends_within(self.short))
        before = await self.clean_all(b, dry_run=True)
        for age in (3600, timedelta(days=7)):
            done = await b.clean(self.backend(), older_than=age)
            assert done.removed == 0
        # What earlier tests abandoned is released in the background, and only adds to it.
        assert (await self.clean_all(b, dry_run=True)).removed >= before.removed

    @needs("cleans")
    async def test_a_cleaning_all_the_time_is_not_noticed(self, runner: Runner) -> None:
        """Grant each of a few names to one at a time, without an error, while two clean."""
        inside: dict[str, Lease] = {}
        over = asyncio.Event()
        passes = [0, 0]

        async def use(actor: Actor) -> None:
            number = 0
            while number < ROUNDS or min(passes) < 2:
                number += 1
                lock = self.lock(runner.name(f"{number % 2}"), wait=30)
                lease = await actor.enter(lock)
                assert lease.name not in inside
                inside[lease.name] = lease
                await asyncio.sleep(0.001)
                assert inside.pop(lease.name) is lease
                await actor.leave(lock)

        async def keep_clean(actor: Actor, which: int) -> None:
            try:
                while not over.is_set():
                    await self.clean_all(actor)
                    passes[which] += 1
            finally:
                passes[which] += ROUNDS  # one that fails is not waited for

        cleaners = [asyncio.create_task(keep_clean(runner.actor(), which)) for which in (0, 1)]
        try:
            await asyncio.gather(*(use(runner.actor()) for _ in range(4)))
        finally:
            over.set()
        await asyncio.gather(*cleaners)

    @needs("cleans", exclusive=False)
    async def test_the_answer_adds_up(self, runner: Runner) -> None:
        """Tell what was seen and removed; there is nothing left to go on from."""
        a = runner.actor()
        done = await a.clean(self.backend(), older_than=3600, batch=1)
        assert isinstance(done, Cleaned)
        assert 0 <= done.removed <= done.seen
        assert done.cursor is None

    @applies_to_all
    async def test_a_policy_out_of_range_is_refused(self, runner: Runner) -> None:
        """Refuse what is too young, what is no number and what is no batch."""
        a = runner.actor()
        wrong: list[dict[str, Any]] = [
            *({"older_than": age} for age in (0, 59, -1, True, None, "7d", float("nan"), 1e12)),
            *({"older_than": 60, "batch": size} for size in (0, -1, 10_001, True, 1.5, None, "5")),
        ]
        for options in wrong:
            with pytest.raises(InvalidLockError) as caught:
                await a.clean(self.backend(), **options)
            assert caught.value.alias == self.alias
