"""`lock_all`: all locks or none, in one order, within one wait."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from .... import (
    AlreadyHeldError,
    InvalidLockError,
    LeaseLostError,
    LockBackendError,
    LockGroup,
    LockTimeoutError,
    lock,
    lock_all,
)
from ....backends.base import BaseLockBackend
from ....exceptions import StoreConflictError
from ...runners import Actor, Runner, eventually
from ...taps import failing, tap, untouchable
from ..base import ContractBase, applies_to_all, needs

__all__ = ["Groups"]


class Groups(ContractBase):
    """Several locks at once."""

    def _group(self, *names: str, **options: Any) -> LockGroup:
        group: LockGroup = lock_all(*map(self.lock, names), **options)
        return group

    def _in_order(self, runner: Runner, count: int) -> list[str]:
        """Return names in the order in which groups take them."""
        return sorted(map(runner.name, map(str, range(count))), key=self.backend().key)

    @applies_to_all
    async def test_all_are_obtained_in_the_order_given(self, runner: Runner) -> None:
        """Return a lease for each name, in the order of the names, and free all at the end."""
        a = runner.actor()
        names = self._in_order(runner, 4)
        for order in (names, names[::-1]):
            group = self._group(*order)
            leases = await a.enter(group)
            assert [lease.name for lease in leases] == order
            for lease in leases:
                lease.check()
            await a.leave(group)
            assert not any([await a.locked(self.lock(name)) for name in names])
        assert await a.take(lock_all()) == ()

    async def test_all_or_none(self, runner: Runner) -> None:
        """Take none when one of them is held, whichever it is."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        names = self._in_order(runner, 3)
        for name in names:
            lease = await b.take(self.lock(name))
            assert await a.is_refused(self._group(*names))
            with pytest.raises(LockTimeoutError) as refused:
                await a.enter(self._group(*names, wait=0.05))
            assert refused.value.name == name
            for other in names:
                if other != name:
                    await c.release(await c.take(self.lock(other)))
            await b.release(lease)
        for lease in await a.take(self._group(*names)):
            await a.release(lease)

    async def test_an_error_half_way_leaves_none(self, runner: Runner) -> None:
        """Give back what was taken when the store fails, or one is held already, half way."""
        a, backend = runner.actor(), self.backend()
        names = self._in_order(runner, 3)
        lease = await a.take(self.lock(names[2]))
        with pytest.raises(AlreadyHeldError):
            await a.acquire(self._group(*names), wait=0)
        lease.check()
        await a.release(lease)
        many = "try_acquire_many" if backend.at_once > 1 else "try_acquire"
        with failing(backend, many, answered=True), pytest.raises(LockBackendError):
            await a.acquire(self._group(*names), wait=0)
        await eventually(lambda: self._are_free(a, names), 10)

    async def _are_free(self, actor: Actor, names: list[str]) -> bool:
        return not any([await self._is_held(actor, name) for name in names])

    async def _is_held(self, actor: Actor, name: str) -> bool:
        """Ask, again while another thread writes to a database in memory."""
        while True:
            with suppress(StoreConflictError):
                return await actor.locked(self.lock(name))
            await asyncio.sleep(0.001)

    async def test_many_by_few_questions(self, runner: Runner) -> None:
        """Ask the store once, where it takes many: each lock is as one that was asked for alone."""
        a, b, backend = runner.actor(), runner.actor(), self.backend()
        names = self._in_order(runner, 7)
        verbs = ("try_acquire", "try_acquire_many", "release", "release_many")
        tokens = [0] * len(names)
        for _ in range(2):  # of names that are new to the store, and of others
            with ExitStack() as stack:
                taps = (tap(backend, verb, of=names[0]) for verb in verbs)
                calls = [stack.enter_context(each) for each in taps]
                leases = await a.enter(group := self._group(*names, wait=0))
                for number, lease in enumerate(leases):
                    await a.renew(lease)
                    assert await b.locked(self.lock(names[number]))
                    if backend.supports_fencing:
                        assert lease.fencing_token > tokens[number]
                        tokens[number] = lease.fencing_token
                await a.leave(group)
                assert await self._are_free(b, names)
            if backend.at_once >= len(names):
                assert [each.begun for each in calls] == [0, 1, 0, 1]

    async def test_what_comes_after_a_held_one_is_left_to_others(self, runner: Runner) -> None:
        """Hold, while waiting, only what comes before: else groups could wait for each other."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        names = self._in_order(runner, 5)
        lease = await b.take(self.lock(names[2]))
        waiting = a.begin(self._group(*names), wait=20)
        await eventually(lambda: self._is_held(c, names[1]), 10)
        for name in names[3:]:
            await c.release(await c.take(self.lock(name), wait=5))
        for name in names[:2]:
            assert await c.is_refused(self.lock(name))
        await b.release(lease)
        leases = await waiting
        assert leases is not None
        for each in leases:
            assert await c.is_refused(self.lock(each.name))
            await a.release(each)
        assert await self._are_free(c, names)

    @pytest.mark.parametrize("answered", [False, True])
    async def test_the_store_asks_for_another_try(self, runner: Runner, answered: bool) -> None:
        """Obtain all nevertheless, and release all: whether it was done before or not."""
        a, backend = runner.actor(), self.backend()
        names = self._in_order(runner, 4)
        verbs = ("try_acquire_many", "release_many")
        for verb in verbs if backend.at_once > 1 else ():
            with failing(backend, verb, answered=answered, conflict=True, times=1):
                group = self._group(*names, wait=10)
                await a.enter(group)
                await a.leave(group)
            await eventually(lambda: self._are_free(a, names), 10)

    async def test_groups_do_not_wait_for_each_other(self, runner: Runner) -> None:
        """Take the locks in one order, so that no two wait for each other."""
        names = self._in_order(runner, 3)
        actors = [runner.actor(), runner.actor()]

        async def turns(actor: Actor, order: list[str]) -> None:
            for _ in range(5):
                for lease in await actor.take(self._group(*order), wait=20):
                    await actor.release(lease)

        started = time.monotonic()
        await asyncio.gather(turns(actors[0], names), turns(actors[1], names[::-1]))
        assert time.monotonic() - started < 10 * self.handoff

    async def test_the_wait_is_for_all_of_them(self, runner: Runner) -> None:
        """Wait for all locks together no longer than asked for."""
        a, b = runner.actor(), runner.actor()
        first, second = self._in_order(runner, 2)
        taken = math.inf
        for _ in range(3):  # the fastest of them: the machine may be busy
            early, late = await b.take(self.lock(first)), await b.take(self.lock(second))
            started = time.monotonic()
            waiting = a.begin(self._group(second, first), wait=2.2)
            await asyncio.sleep(2)
            await b.release(early)
            assert await waiting is None
            taken = min(taken, time.monotonic() - started)
            await b.release(late)
            if taken < 4:
                break
        assert 2.2 <= taken < 4  # 2 + 2.2 were a wait for each of them

    @applies_to_all
    async def test_a_name_given_twice(self, runner: Runner) -> None:
        """Refuse it before the store is touched."""
        a = runner.actor()
        name, other = runner.name(), runner.name("other")
        with untouchable(self.backend()), pytest.raises(InvalidLockError) as refused:
            await a.acquire(self._group(name, other, name), wait=0)
        assert refused.value.name == name

    async def test_aliases_may_be_mixed(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Take the same name of two aliases: they are two locks."""
        a, b = runner.actor(), runner.actor()
        locks = [self.lock(runner.name()), lock(runner.name(), using=twins(runner.prefix).alias)]
        leases = await a.take(lock_all(*locks))
        for each in locks:
            assert await b.is_refused(each)
        for lease in leases:
            await a.release(lease)

    @needs("force_releases")
    async def test_one_that_was_lost(self, runner: Runner) -> None:
        """Tell of a lost one at the end of the block, and free the others nevertheless."""
        a, b = runner.actor(), runner.actor()
        names = self._in_order(runner, 3)
        for name in names:
            group = self._group(*names)
            await a.enter(group)
            await b.force(self.backend(), name)
            with pytest.raises(LeaseLostError) as lost:
                await a.leave(group)
            assert lost.value.name == name
            assert not any([await b.locked(self.lock(each)) for each in names])
