"""6, 7 and 10. Waiters are woken, without a herd, and no wait is longer than it was asked for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from unittest import mock

import pytest

from .... import Lease, LeaseLostError, Lock, LockBackendError
from .... import lock as lock_of
from ....backends.base import BaseLockBackend
from ....core.flow import MIN_ATTEMPT_TIMEOUT, QUEUE_LIMIT, Flow, Granted, Wait, acquire
from ....core.values import Grant
from ....exceptions import StoreConflictError
from ...runners import Actor, Runner, ask_again, is_late, until
from ...taps import tap
from ..base import ContractBase, needs

__all__ = ["Waiting"]

LONG = 20.0
LATE = 7.0


def delayed(steps: Flow[object], late: list[float]) -> Flow[object]:
    """Be ``steps``, but set their clock forward when the store tells of a grant in its queue."""
    step = next(steps)
    while True:
        try:
            answer = yield step
            late[0] += LATE if isinstance(step, Wait) and isinstance(answer, Grant) else 0.0
            step = steps.send(answer)
        except LockBackendError as error:
            step = steps.throw(error)
        except StopIteration as end:
            return end.value


class Waiting(ContractBase):
    """Waiting for a lock that another holds."""

    async def test_a_freed_lock_goes_to_a_waiter(self, runner: Runner) -> None:
        """Grant a freed lock to the one who waits, soon."""
        a, b = runner.actor(), runner.actor()
        for wait in (LONG, None):
            lock = self.lock(runner.name(str(wait)))
            lease = await a.take(lock)
            with tap(self.backend(), "try_acquire") as calls:
                waiting = b.begin(lock, wait=wait)
                await calls.came()
                await asyncio.sleep(0.15)
                assert not waiting.done()
                await a.release(lease)
                freed = time.monotonic()
                theirs = await waiting
            assert isinstance(theirs, Lease)
            assert time.monotonic() - freed <= self.handoff
            await b.release(theirs)

    async def test_a_grant_that_reaches_the_waiter_late(self, runner: Runner) -> None:
        """Count a lease from when it was asked for, though the waiter heard of it long after.

        Its thread may have stood still in between, or its event loop have been busy.
        """
        backend = self.backend()
        holders = [runner.actor() for _ in range(3)]
        for limit in (None, 1) if self.has("supports_limit") else (None,):
            name = runner.name(str(limit))
            lock = self.lock(name, limit=limit)
            lease = await holders[0].take(lock)
            waiting = holders[1].begin(lock, wait=LONG)
            await until(lambda: not self.has("queues") or self.queued(1))
            claim = self.claim(name)._replace(limit=limit or 0, waits=True)
            late = [0.0]
            steps = acquire(
                backend,
                claim,
                until=None,
                clock=lambda: backend.clock() + late[0],  # noqa: B023 - used up in this round
                delays=backend.backoff,
                abandon=lambda claim: None,
            )
            driving = asyncio.create_task(holders[2].drive(delayed(steps, late)))
            await asyncio.sleep(0.3)
            await holders[0].release(lease)
            await asyncio.wait({waiting, driving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (driving, waiting) if driving.done() else (waiting, driving):
                got = await task
                if isinstance(got, Granted):
                    assert got.deadline <= backend.clock() + claim.ttl
                    assert await holders[2].call(backend, "release", claim) is True
                else:
                    assert isinstance(got, Lease)
                    await asyncio.sleep(0.2)  # the last one is the next by then
                    await holders[1].release(got)

    @needs("force_releases")
    async def test_a_forced_lock_goes_to_a_waiter(self, runner: Runner) -> None:
        """Grant a lock that was broken, or given back by a block, to the one who waits."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        name = runner.name()
        lock = self.lock(name)
        lease = await a.take(lock)
        with tap(self.backend(), "try_acquire") as calls:
            waiting = b.begin(lock, wait=LONG)
            await calls.came()
            await c.force(self.backend(), name, self.token(lease))
            freed = time.monotonic()
            theirs = await waiting
        assert isinstance(theirs, Lease)
        assert time.monotonic() - freed <= self.handoff
        await b.release(theirs)

    async def test_every_waiter_has_its_turn(self, runner: Runner) -> None:
        """Grant the lock to each of many waiters, one after the other."""
        holder, waiters = runner.actor(), [runner.actor() for _ in range(5)]
        lock = self.lock(runner.name())
        inside: list[Actor] = []
        served: list[Actor] = []

        async def turn(actor: Actor) -> None:
            lease = await actor.take(lock, wait=LONG)
            inside.append(actor)
            await asyncio.sleep(0.005)
            assert inside == [actor]
            inside.remove(actor)
            served.append(actor)
            await actor.release(lease)

        lease = await holder.take(lock)
        turns = [asyncio.create_task(turn(actor)) for actor in waiters]
        await asyncio.sleep(0.1)
        await holder.release(lease)
        freed = time.monotonic()
        await asyncio.gather(*turns)
        assert time.monotonic() - freed <= len(waiters) * self.handoff
        assert len(served) == len(waiters)

    @needs("fair")
    async def test_waiters_are_served_in_order(self, runner: Runner) -> None:
        """Grant the lock first to the one who has waited longest, whoever comes meanwhile."""
        holder, waiters = runner.actor(), [runner.actor() for _ in range(4)]
        lock = self.lock(runner.name())
        served: list[Actor] = []

        async def turn(actor: Actor) -> None:
            lease = await actor.take(lock, wait=LONG)
            served.append(actor)
            await actor.release(lease)

        lease = await holder.take(lock)
        turns = []
        for number, actor in enumerate(waiters, 1):
            with tap(self.backend(), "try_acquire") as calls:
                turns.append(asyncio.create_task(turn(actor)))
                await calls.came()
            await until(partial(self.queued, number))
        await holder.release(lease)
        await asyncio.gather(*turns)
        assert served == waiters

    @needs("notifies")
    async def test_no_wake_up_is_lost(self, runner: Runner) -> None:
        """Serve each waiter though others come and give up, and none polls meanwhile."""
        lock = self.lock(runner.name(), ttl=3 * LONG)

        async def patient(actor: Actor) -> None:
            for _ in range(8):
                await actor.release(await actor.take(lock, wait=LONG))

        async def hasty(actor: Actor, number: int) -> None:
            for turn in range(12):
                attempt = partial(actor.acquire, lock, wait=0.01 * (1 + (3 * turn + number) % 5))
                with suppress(StoreConflictError):  # until the wait was over
                    if (lease := await ask_again(attempt, time.monotonic() + LONG)) is not None:
                        await actor.release(lease)

        with mock.patch.object(self.backend(), "queue_limit", 3 * LONG):
            await asyncio.gather(
                *(patient(runner.actor()) for _ in range(3)),
                *(hasty(runner.actor(), number) for number in range(3)),
            )

    @needs("notifies")
    async def test_waiters_are_no_herd(self, runner: Runner) -> None:
        """Ask the store no oftener for a hand-off when more are waiting."""
        holder, waiters = runner.actor(), [runner.actor() for _ in range(8)]
        work = {}
        for number in (2, 8):
            lock = self.lock(runner.name(str(number)))

            async def turn(actor: Actor, lock: Lock = lock) -> None:
                await actor.release(await actor.take(lock, wait=LONG))

            lease = await holder.take(lock)
            with tap(self.backend(), "try_acquire") as calls:
                began = time.monotonic()
                turns = [asyncio.create_task(turn(actor)) for actor in waiters[:number]]
                await calls.came(number)
                queued = calls.begun
                await holder.release(lease)
                await asyncio.gather(*turns)
                # Whoever waits looks once a second by itself: no work of the hand-offs.
                looks = number * math.ceil((time.monotonic() - began) / QUEUE_LIMIT)
                work[number] = max(0, calls.begun - queued - looks) / number
        assert work[8] <= 2 * work[2] + 2

    async def test_a_waiter_that_gave_up_takes_no_turn(self, runner: Runner) -> None:
        """Wake the next waiter when the one before it has stopped waiting."""
        a, b, c = runner.actor(), runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        brief = b.begin(lock, wait=0.15)
        with tap(self.backend(), "try_acquire") as calls:
            waiting = c.begin(lock, wait=LONG)
            await calls.came()
            assert await brief is None
            await a.release(lease)
            freed = time.monotonic()
            theirs = await waiting
        assert isinstance(theirs, Lease)
        assert time.monotonic() - freed <= self.handoff
        await c.release(theirs)

    async def test_the_ttl_counts_from_the_last_question(self, runner: Runner) -> None:
        """Count the ttl of a waiter from its grant, not from when it began to wait."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name(), ttl=10, renew=False)
        lease = await a.take(lock)
        with tap(self.backend(), "try_acquire") as calls:
            waiting = b.begin(lock, wait=LONG)
            await asyncio.sleep(0.5)
            await a.release(lease)
            theirs = await waiting
            assert isinstance(theirs, Lease)
            since = time.monotonic() - calls.last
            assert theirs.remaining() > 10 - since - 0.4
        await b.release(theirs)

    async def test_a_wait_may_be_longer_than_the_ttl(self, runner: Runner) -> None:
        """Keep a waiter's queue entry, or let it ask on, also when its ttl has passed."""
        a, b = runner.actor(), runner.actor()
        name = runner.name()
        lease = await a.take(self.lock(name))
        waiting = b.begin(self.lock(name, ttl=self.short), wait=LONG)
        await asyncio.sleep(1.5 * self.short)
        await a.release(lease)
        theirs = await waiting
        assert isinstance(theirs, Lease)
        with suppress(LeaseLostError):  # it is a short one
            await b.release(theirs)

    async def test_a_wait_ends_in_time(self, runner: Runner) -> None:
        """Wait no longer than asked for, nor for less, however many do."""
        a, waiters = runner.actor(), [runner.actor() for _ in range(4)]
        lock = self.lock(runner.name())
        lease = await a.take(lock)

        async def timed(actor: Actor) -> float:
            started = time.monotonic()
            try:
                assert await actor.acquire(lock, wait=0.3) is None
            except LockBackendError as error:
                if not is_late(error):
                    raise
            return time.monotonic() - started

        for taken in await asyncio.gather(*map(timed, waiters)):
            assert 0.3 <= taken <= 0.3 + 0.1 + self.round_trip
        await a.release(lease)

    async def test_no_wait_is_one_try(self, runner: Runner) -> None:
        """Ask a store once for a lock that is held when the wait is 0."""
        a, b = runner.actor(), runner.actor()
        lock = self.lock(runner.name())
        lease = await a.take(lock)
        with tap(self.backend(), "try_acquire") as calls:
            started = time.monotonic()
            assert await b.is_refused(lock)
            assert time.monotonic() - started <= 0.1 + self.round_trip
        assert calls.begun == 1
        await a.release(lease)

    async def test_the_calls_wait_wins(self, runner: Runner) -> None:
        """Take the wait that is given to the call before that of the lock."""
        a, b = runner.actor(), runner.actor()
        patient, hasty = self.lock(runner.name(), wait=LONG), self.lock(runner.name(), wait=0)
        lease = await a.take(patient)
        started = time.monotonic()
        assert await b.is_refused(patient)
        assert time.monotonic() - started <= 0.1 + self.round_trip
        assert await b.acquire(hasty, wait=0.2) is None
        assert time.monotonic() - started >= 0.2
        await a.release(lease)

    @needs("hang_store")
    async def test_a_hung_store_is_not_waited_for(self, runner: Runner) -> None:
        """Keep the wait also when the store gives no answer; call that an error, and leave nothing.

        The wait is one that is longer than the least that one call may take.
        """
        a, b = runner.actor(), runner.actor()
        lock, wait = self.lock(runner.name()), MIN_ATTEMPT_TIMEOUT + 0.2
        await b.release(await b.take(self.lock(runner.name("connected"))))
        lease = await a.take(self.lock(runner.name("held")))
        with self.hang_store():
            started = time.monotonic()
            with pytest.raises(LockBackendError):
                await b.acquire(lock, wait=wait)
            taken = time.monotonic() - started
        assert taken <= wait + 0.1 + self.round_trip
        lease.check()
        await a.release(lease)

    @needs("hang_store")
    @pytest.mark.parametrize(("wait", "unused"), [(0, True), (1, False)])
    async def test_a_hung_store_costs_a_second_more_than_the_wait(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend], wait: float, unused: bool
    ) -> None:
        """Keep that bound also where a connection has to be made first, as for a new thread.

        And where nothing was asked yet, as at the first lock of a process.
        """
        stranger = runner.actor()
        backend = twins(runner.prefix) if unused else self.backend()
        await stranger.call(backend, "close_thread")
        with self.hang_store():
            started = time.monotonic()
            with pytest.raises(LockBackendError):
                await stranger.acquire(lock_of(runner.name(), using=backend.alias), wait=wait)
            taken = time.monotonic() - started
        assert taken <= wait + MIN_ATTEMPT_TIMEOUT + self.round_trip
