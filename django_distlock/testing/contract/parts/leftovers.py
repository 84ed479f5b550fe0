"""8. A wait that ends, however it ends, leaves no lock and no queue entry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from .... import Lease
from ....core.flow import Flow, Granted, acquire
from ....core.values import Claim, Refusal
from ...runners import AsyncRunner, Cancelled, Runner, until
from ...taps import Gate, failing, tap
from ..base import ContractBase, lacks, only

__all__ = ["Leftovers"]

LONG = 20.0


def interrupted(steps: Flow[object], error: BaseException, at: int) -> Flow[object]:
    """Be ``steps``, but throw ``error`` into them in place of the answer to step number ``at``.

    The step has been carried out by then: as when Ctrl-C comes just after the answer.
    """
    step = next(steps)
    number = 0
    while True:
        answer = yield step
        try:
            step = steps.throw(error) if number == at else steps.send(answer)
        except StopIteration as end:
            return end.value
        number += 1


class Stop(BaseException):
    """As KeyboardInterrupt, which asyncio would not leave to the test."""


class Leftovers(ContractBase):
    """What is left behind by those who did not get the lock: nothing."""

    async def _free(self, runner: Runner, name: str) -> None:
        """Fail unless the lock is there to be had, by a new actor, at once."""
        looker = runner.actor()
        assert await looker.call(self.backend(), "inspect", name) is None
        await looker.release(await looker.take(self.lock(name)))

    def _acquiring(
        self, claim: Claim, until: float | None, abandon: Callable[[Claim], None]
    ) -> Flow[Granted | Refusal]:
        backend = self.backend()
        return acquire(
            backend,
            claim,
            until=until,
            clock=backend.clock,
            delays=backend.backoff,
            abandon=abandon,
        )

    def _brief_turns(self) -> AbstractContextManager[object]:
        """Have a turn in the store's queue end soon: nothing comes that would end it."""
        return mock.patch.object(self.backend(), "queue_limit", self.brief)

    async def test_a_timed_out_wait(self, runner: Runner) -> None:
        """Leave nothing when the time is up."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        for wait in (0, 0.05):
            assert await b.acquire(lock, wait=wait) is None
        await a.release(lease)
        await self._free(runner, name)

    async def test_an_interrupted_acquire(self, runner: Runner) -> None:
        """Leave nothing when Ctrl-C comes just after the store's answer, yes or no.

        A question of which nothing was found is withdrawn again later: it may not have reached the
        store by then.
        """
        a, b = runner.actor(), runner.actor()
        abandoned: list[Claim] = []
        for held in (False, True):
            # Held: step 0 is refused and 1 is the pause. Free: step 0 is granted.
            for at in (0, 1, 2) if held else (0,):
                name = runner.name(f"{held}{at}")
                lease: Lease | None = None
                if held:
                    lease = await b.take(self.lock(name))
                claim = self.claim(name)
                steps = self._acquiring(claim, None, abandoned.append)
                with pytest.raises(KeyboardInterrupt), self._brief_turns():
                    await a.drive(interrupted(steps, KeyboardInterrupt(), at))
                assert await a.call(self.backend(), "renew", claim) is False
                if lease is not None:
                    await b.release(lease)
                await self._free(runner, name)
        assert {claim.name for claim in abandoned} <= {runner.name(f"True{at}") for at in (0, 1, 2)}

    async def test_a_closed_flow_is_abandoned(self, runner: Runner) -> None:
        """Hand the claim on to be withdrawn when no driver carries out the steps any more."""
        a = runner.actor()
        abandoned: list[Claim] = []
        claim = self.claim(runner.name())
        steps = self._acquiring(claim, None, abandoned.append)
        first = next(steps)
        await a.drive(only(first))
        steps.close()
        assert abandoned == [claim]
        assert await a.call(self.backend(), "release", claim) is True

    async def test_an_error_while_waiting(self, runner: Runner) -> None:
        """Leave nothing when an error of the program ends the wait."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        broken = RuntimeError("of the program")
        abandoned: list[Claim] = []
        with pytest.raises(RuntimeError, match="of the program"), self._brief_turns():
            await b.drive(
                interrupted(self._acquiring(self.claim(name), None, abandoned.append), broken, 1)
            )
        await a.release(lease)
        await self._free(runner, name)
        assert abandoned == []

    async def test_an_interrupted_release(self, runner: Runner) -> None:
        """Free the lock in the background when Ctrl-C comes between two tries to release it."""
        a, backend = runner.actor(), self.backend()
        name = runner.name()
        lease = await a.take(self.lock(name))

        def stop() -> None:
            raise Stop

        with failing(backend, "release", of=name, times=1, conflict=True):
            with tap(backend, "pause", before=stop), pytest.raises(Stop):
                await a.release(lease)
            await self.nobody_holds(a, name, within=5.0)
        await self._free(runner, name)

    async def test_a_cancelled_wait(self, tasks: AsyncRunner) -> None:
        """Leave nothing when the waiting task is cancelled, early or late."""
        a, b = tasks.actor(), tasks.actor()
        name = tasks.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        for delay in (0, 0.001, 0.01, 0.05, 0.1):
            waiting = b.begin(lock, wait=LONG)
            await until(lambda: b.busy)
            await asyncio.sleep(delay)
            b.cancel()
            with pytest.raises(Cancelled):
                await waiting
        await a.release(lease)
        await self._free(tasks, name)

    async def test_a_wait_within_asyncio_timeout(self, tasks: AsyncRunner) -> None:
        """Leave nothing when `asyncio.timeout` ends the wait."""
        a, b = tasks.actor(), tasks.actor()
        name = tasks.name()
        lock = self.lock(name)
        lease = await a.take(lock)

        async def limited() -> None:
            async with asyncio.timeout(0.1):
                await lock.aacquire(wait=None)

        with pytest.raises(TimeoutError):
            await b.run(limited)
        await a.release(lease)
        await self._free(tasks, name)

    @lacks("never_blocks")
    async def test_a_cancellation_while_the_store_answers(self, tasks: AsyncRunner) -> None:
        """Give a grant back that comes when its task was cancelled, even twice."""
        a = tasks.actor()
        for place in ("before", "after"):
            for times in (1, 2):
                name = tasks.name(f"{place}{times}")
                lock = self.lock(name)
                gate = Gate()
                where: dict[str, Any] = {place: gate}
                with tap(self.backend(), "try_acquire", **where):
                    asking = a.begin(lock, wait=0)
                    await until(gate.reached)
                    for _ in range(times):
                        a.cancel()
                        await asyncio.sleep(0.02)
                    assert not asking.done()  # else the store could grant what nobody has
                    gate.open()
                    with pytest.raises(Cancelled):
                        await asking
                await self._free(tasks, name)

    @lacks("never_blocks")
    async def test_a_cancellation_while_the_store_frees(self, tasks: AsyncRunner) -> None:
        """Free the lock also when the task was cancelled in the middle of the release."""
        a = tasks.actor()
        for place in ("before", "after"):
            name = tasks.name(place)
            lock = self.lock(name)
            lease = await a.take(lock)
            gate = Gate()
            where: dict[str, Any] = {place: gate}
            with tap(self.backend(), "release", of=name, **where):
                freeing = asyncio.create_task(a.release(lease))
                await until(gate.reached)
                a.cancel()
                await asyncio.sleep(0.02)
                gate.open()
                with pytest.raises(Cancelled):
                    await freeing
            await self._free(tasks, name)

    async def test_a_cancelled_block(self, tasks: AsyncRunner) -> None:
        """Free the lock when the body of its block is cancelled."""
        a = tasks.actor()
        name = tasks.name()
        inside = asyncio.Event()

        async def body() -> None:
            async with self.lock(name):
                inside.set()
                await asyncio.sleep(30)

        running = asyncio.create_task(a.run(body))
        await inside.wait()
        a.cancel()
        with pytest.raises(Cancelled):
            await running
        await self._free(tasks, name)

    async def test_a_wait_cancelled_as_the_lock_is_freed(self, tasks: AsyncRunner) -> None:
        """Lose no wake-up to a waiter that is cancelled at the moment of the release."""
        a, b, c = tasks.actor(), tasks.actor(), tasks.actor()
        for turn in range(5):
            lock = self.lock(tasks.name(str(turn)))
            lease = await a.take(lock)
            with tap(self.backend(), "try_acquire") as calls:
                first = b.begin(lock, wait=LONG)
                await calls.came()
                second = c.begin(lock, wait=LONG)
                await calls.came(2)
                freeing = asyncio.create_task(a.release(lease))
                await asyncio.sleep(0.002 * turn)
                if b.busy:
                    b.cancel()
                await freeing
            theirs = await _outcome(first)
            if isinstance(theirs, Lease):  # it was faster than the cancellation
                await b.release(theirs)
            mine = await asyncio.wait_for(second, self.handoff)
            assert isinstance(mine, Lease)
            await c.release(mine)


async def _outcome(task: asyncio.Task[Lease | None]) -> Lease | None:
    try:
        return await task
    except Cancelled:
        return None
