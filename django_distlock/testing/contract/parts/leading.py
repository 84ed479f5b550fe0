"""Leaders: one at a time leads, the next one follows at once, and who observes is told of each."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from .... import Lease, LockInfo, leader
from ...runners import Actor, Runner
from ..base import ContractBase, needs

__all__ = ["Leading"]

Body: TypeAlias = Callable[[Lease], bool]
"""What a leader does again and again until it returns True."""

PAUSE = 0.02  # seconds between two rounds of a body, and between two checks of an observer


class Leading(ContractBase):
    """Leader election, by nothing but the lock."""

    def _campaign(self, actor: Actor, name: str, body: Body, ttl: float = 20.0) -> Awaitable[None]:
        """Have an actor campaign, and do ``body`` whenever it leads."""
        elected = leader(name, using=self.alias, ttl=ttl)

        @elected
        def here(lease: Lease) -> None:
            while not body(lease):
                lease.check()
                time.sleep(PAUSE)

        @elected
        async def there(lease: Lease) -> None:
            while not body(lease):
                await asyncio.sleep(PAUSE)

        # Its own annotation hides the parameter from callers.
        return actor._do(here, there)  # type: ignore[arg-type]

    async def _observe(self, actor: Actor, name: str, wanted: int | None) -> None:
        """Wait until an observer is told that none leads, or who has this token."""
        observed = leader(name, using=self.alias)
        sync, native = observed.observe(every=PAUSE), observed.aobserve(every=PAUSE)

        async def following() -> LockInfo | None:
            return await actor._do(lambda: next(sync), lambda: anext(native))

        before = await following()
        while (before and before.fencing_token) != wanted:
            seen = await asyncio.wait_for(following(), 20)
            assert (seen is None) or (before is None) or seen != before
            before = seen
        await native.aclose()

    async def test_one_at_a_time_leads(self, runner: Runner) -> None:
        """Have each of three lead once, one after the other, with rising tokens."""
        actors = [runner.actor() for _ in range(3)]
        name = runner.name()
        spans: list[tuple[float, float]] = []
        tokens: list[int | None] = []

        def body(lease: Lease) -> bool:
            began = time.monotonic()
            time.sleep(PAUSE)
            spans.append((began, time.monotonic()))
            tokens.append(self.token(lease))
            return True

        campaigns = [self._campaign(actor, name, body) for actor in actors]
        await asyncio.wait_for(asyncio.gather(*campaigns), 20 + 3 * self.handoff)
        assert len(spans) == 3
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
        if self.has("supports_fencing"):
            assert tokens == sorted(tokens, key=lambda token: token or 0)

    async def test_a_resigned_leader_is_followed(self, runner: Runner) -> None:
        """Pass the leadership on at once when the leader resigns."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name))
        following = asyncio.ensure_future(self._campaign(b, name, lambda lease: True))
        await asyncio.sleep(PAUSE)
        await a.resign(lease)
        await asyncio.wait_for(following, 10 + self.handoff)

    @needs("force_releases")
    async def test_a_leader_that_lost_campaigns_again(self, runner: Runner) -> None:
        """Run again after a loss, as a later grant."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        leases: list[Lease] = []

        def body(lease: Lease) -> bool:
            if not leases or leases[-1]._hold is not lease._hold:
                leases.append(lease)
            return len(leases) == 2

        leading = asyncio.ensure_future(self._campaign(a, name, body, ttl=self.brief))
        while not leases:
            await asyncio.sleep(PAUSE)
        await b.force(self.backend(), name)
        await asyncio.wait_for(leading, 20 + self.ends_within(self.brief))
        first, second = leases
        assert first.lost
        self.newer(second, than=first)

    @needs("supports_fencing")
    async def test_an_observer_is_told(self, runner: Runner) -> None:
        """Tell who leads now, and then of each change."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        await self._observe(b, name, None)
        for _ in range(2):
            lease = await a.take(lock)
            await self._observe(b, name, lease.fencing_token)
            await a.release(lease)
            await self._observe(b, name, None)
