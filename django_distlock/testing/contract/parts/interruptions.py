"""8. A cancellation at any step and a signal at any moment leave no lock behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import sys
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from .... import LeaseLostError, Lock, LockBackendError, LockNotAcquiredError, lock_all
from ....core import clock
from ....core.blocks import Guard
from ....core.registry import take_dropped
from ....core.watchdog import watchdog
from ....core.worker import Worker
from ...runners import AsyncRunner, is_late
from ..base import ContractBase, applies_to_all, lacks

__all__ = ["Interruptions"]


class Interruptions(ContractBase):
    """Interrupted entering and leaving of blocks, one lock and many."""

    interrupts: ClassVar[int] = 100
    """How many signals interrupt the sync blocks."""
    moments_apart: ClassVar[int] = 1
    """One of so many moments of a block is interrupted: where all of them would take too long."""

    async def test_a_cancellation_at_any_step(self, tasks: AsyncRunner) -> None:
        """Leave nothing when a block is cancelled at each of its suspensions in turn.

        Once, or again at each later suspension, as anyio and Trio do it; before what was awaited is
        done, or after it.
        """
        backend = self.backend()
        for in_transaction in ("hold", "allow"):
            conf = replace(backend.conf, in_transaction=in_transaction)
            with mock.patch.object(backend, "conf", conf):
                for late in (False, True):
                    for again in (False, True):
                        await self._sweep(tasks, f"{in_transaction}-{late}-{again}", late, again)

    async def _sweep(self, tasks: AsyncRunner, what: str, late: bool, again: bool) -> None:
        for many in (False, True):
            step = 0
            reached = True
            while reached:
                name = tasks.name(f"{what}-{many}-{step}")
                guard: Guard[Any] = self.lock(name)
                if many:
                    guard = lock_all(self.lock(f"{name}-a"), self.lock(f"{name}-b"))
                steps = _Cancelling(_block(guard), step, late=late, again=again)
                task = asyncio.create_task(steps.run())
                await asyncio.wait([task])
                reached = steps.reached
                if not reached:
                    task.result()
                elif not task.cancelled():
                    raise AssertionError(f"cancelled at step {step}: {task.exception()!r}")
                step += 1
            assert step > 2 or self.backend().never_blocks, "no suspension was seen"

    # A connection that a driver was about to hand out is collected, and says so.
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @applies_to_all
    def test_a_signal_at_any_moment(self) -> None:
        """Leave nothing when a signal's handler raises at a random moment of a block."""
        prefix = f"contract:{os.urandom(6).hex()}:"
        self._take_dropped()  # what earlier tests have left
        mine = self.lock(prefix, wait=0)
        with mine:  # what is made once is there
            pass
        cycle = _seconds_of(mine)
        chance = random.Random(prefix)  # noqa: S311 - no secret
        with _on_alarm(_interrupt):
            for number in range(self.interrupts):
                self._interrupted(f"{prefix}{number}", chance.uniform(1e-5, 2 * cycle))
        self._all_free([f"{prefix}{number}" for number in range(self.interrupts)])

    # As above; and a finalizer of Python's lets no error through.
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("what", ["free", "held"])
    @applies_to_all
    def test_an_interruption_at_every_moment(self, what: str) -> None:
        """Leave nothing, and do no harm to the next, whenever a block is interrupted."""
        self.interrupt_at_every_moment(what)

    def interrupt_at_every_moment(self, what: str) -> None:
        """Interrupt blocks of a free or a held lock, or of several, at each moment in turn.

        By turns as Ctrl-C and as Celery's soft time limit do.
        """
        prefix = f"contract:{os.urandom(6).hex()}:"
        names: list[str] = []
        self._take_dropped()  # what earlier tests have left
        with self.lock(prefix, wait=0):  # what is made once is there
            pass
        reached, moment, busy = True, 0, 2  # how often the store may be too busy to answer in time
        with ThreadPoolExecutor(1) as other:
            while reached:
                names.append(f"{prefix}{moment}")
                guard: Guard[Any] = self.lock(names[-1])
                lease = None
                if what == "held":
                    lease = other.submit(guard.acquire).result()
                    guard = self.lock(names[-1], wait=WAIT)
                if what == "several":
                    names.append(f"{names[-1]}-more")
                    guard = lock_all(*map(self.lock, names[-2:]))
                kind = (_Interrupt, _SoftLimit)[(moment + (what == "held")) % 2]
                raised, late = None, False
                with _at_moment(moment, kind) as profile:
                    try:
                        with guard:
                            pass
                    except (kind, LockNotAcquiredError) as error:
                        raised = type(error)
                    except LockBackendError as error:
                        late, busy = True, busy - 1
                        if busy < 0 or not is_late(error):
                            raise
                reached = profile.reached or late
                if reached and not profile.ignored and not late:
                    assert raised is kind, f"{moment}: {profile.where} raised {raised}"
                moment += self.moments_apart
                with self.lock(f"{prefix}next") as following:
                    _drain()
                    following.check()
                if lease is not None:
                    # It is lost where the session that was interrupted ends, with all its locks.
                    with suppress(LeaseLostError):
                        other.submit(lease.release).result()
        assert moment > 20
        self._all_free(names)

    def _all_free(self, names: list[str]) -> None:
        """Wait until no lock of interrupted blocks is held, and their connections are let go.

        They are released, so of none will it be said that it was dropped to its ttl.
        """
        end = time.monotonic() + self.settles + 5.0
        while left := [name for name in names if self.lock(name).locked()]:
            assert time.monotonic() < end, f"{len(left)} are left: {left[:5]}"
            time.sleep(0.02)
        _drain()
        assert not self._take_dropped()

    def _take_dropped(self) -> list[str]:
        """Return the names whose leases are watched but gone, of which the watchdog would tell."""
        gc.collect()
        with watchdog._mutex:
            buckets = [list(bucket.values()) for _, _, bucket in watchdog._schedule._heap]
        mine = [entry for bucket in buckets for entry in bucket if entry[3] == self.backend().alias]
        return [claim.name for _, index, claim, _, _ in mine if take_dropped(index)]

    @lacks("thread_sensitive")
    def test_a_signals_handler_that_uses_locks(self) -> None:
        """Let the handler of a signal take and release a lock, whatever its thread is doing.

        As at the end of a process that is told to stop. A store that is asked through the thread's
        own connection, as Django's databases are, cannot: no driver answers in between.
        """
        prefix = f"contract:{os.urandom(6).hex()}:"
        mine = self.lock(f"{prefix}mine", wait=0)
        used = 0

        def handle(number: int, frame: types.FrameType | None) -> None:
            nonlocal used
            with self.lock(f"{prefix}{used}", wait=20):
                used += 1

        with mine:  # what is made once is there
            pass
        cycle = _seconds_of(mine)
        chance = random.Random(prefix)  # noqa: S311 - no secret
        with _without_collecting(), _on_alarm(handle):
            for number in range(self.interrupts):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 2 * cycle))
                while used <= number:
                    with mine:
                        pass
        assert not any(self.lock(f"{prefix}{each}").locked() for each in ("mine", *range(used)))

    def _interrupted(self, name: str, after: float) -> None:
        try:
            # Once more where the first is lost: nothing that Python calls by itself, such as a
            # finalizer, lets an error through.
            signal.setitimer(signal.ITIMER_REAL, after, 0.5)
            while True:
                with self.lock(name):
                    pass
        except _Interrupt:
            pass
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except _Interrupt:  # the second one, when this took long
                continue


@contextmanager
def _on_alarm(handler: Callable[[int, types.FrameType | None], None]) -> Iterator[None]:
    """Have SIGALRM call ``handler``.

    Without a tracer, such as coverage's: it has a mutex that a handler would find locked, or leave.
    """
    tracer, before = sys.gettrace(), signal.signal(signal.SIGALRM, handler)
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    sys.settrace(None)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        sys.settrace(tracer)


class _Profile:
    """Raises at one of the moments at which Python runs the handler of a signal.

    Which are the beginning of a function, and the end of a call that is not of Python code. ``at``
    counts those of the package, from 0.
    """

    def __init__(self, at: int, kind: type[BaseException]) -> None:
        self._left = at
        self._kind = kind
        self.reached = False
        self.where = ""
        self.ignored = False
        """Whether Python let it go no further: from the end of a generator, say."""

    def __call__(self, frame: types.FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "c_return") or not file.startswith(OURS):
            return
        if not file.startswith(TESTING) and not self.reached:
            self.reached = self._left == 0
            self._left -= 1
            if self.reached:
                self.where = f"{file}:{frame.f_lineno}, {event}"
                raise self._kind

    def unraisable(self, args: sys.UnraisableHookArgs) -> None:
        """Note what Python could not raise."""
        self.ignored |= args.exc_type is self._kind


@contextmanager
def _at_moment(number: int, kind: type[BaseException]) -> Iterator[_Profile]:
    """Interrupt this thread once, at one of the moments of the package."""
    before, profile = sys.getprofile(), _Profile(number, kind)
    sys.setprofile(profile)
    try:
        with mock.patch.object(sys, "unraisablehook", profile.unraisable):
            yield profile
    finally:
        sys.setprofile(before)


def _drain() -> None:
    """Wait until the workers have released what was left to them, and let go of connections."""
    for worker in Worker.all():
        worker.drain(clock.now() + 10.0)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Have no garbage collected, where that would let a handler in at a bad moment.

    Before 3.12 Python collects inside of ContextVar.set(), and a finalizer lets the handler in,
    whose own set() frees what the one outside goes on with: a crash, also without any lock.
    """
    unsafe = sys.version_info < (3, 12) and gc.isenabled()
    if unsafe:
        gc.disable()
    try:
        yield
    finally:
        if unsafe:
            gc.enable()


def _seconds_of(mine: Lock) -> float:
    """Return how long it takes to acquire and release a lock."""
    started = time.perf_counter()
    for _ in range(10):
        with mine:
            pass
    return (time.perf_counter() - started) / 10


class _Interrupt(BaseException):
    """What the signal's handler raises, as that of Ctrl-C does."""


class _SoftLimit(Exception):
    """What it raises where it is Celery's, of the soft time limit."""


WAIT = 0.02
"""Seconds that a block waits for a held lock, until it is interrupted."""
OURS = str(Path(__file__).parents[3])
TESTING = str(Path(__file__).parents[2])
LATER = 2e-5
"""Seconds after which an interruption is tried again that met the code of another library."""


def _interrupt(number: int, frame: types.FrameType | None) -> None:
    # Python 3.14 runs handlers between the call of ``lock.__enter__`` and the block: of another
    # library, such as Django or a driver, that would leave a mutex locked which we cannot help.
    foreign = frame is not None and not frame.f_code.co_filename.startswith(OURS)
    if foreign and sys.version_info >= (3, 14):
        signal.setitimer(signal.ITIMER_REAL, LATER, 0.5)
        return
    raise _Interrupt


async def _block(guard: Guard[Any]) -> None:
    async with guard:
        await asyncio.sleep(0)


class _Cancelling:
    """Drives a coroutine and cancels its task at the suspension ``at``, counted from 0."""

    def __init__(
        self, work: Coroutine[Any, Any, None], at: int, *, late: bool, again: bool
    ) -> None:
        self._work = work
        self._at = at
        self._late = late
        self._again = again
        self._count = 0
        self.reached = False

    async def run(self) -> None:
        """Run the coroutine to its end."""
        await self._drive()

    @types.coroutine
    def _drive(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        resume = self._work.send
        answer: Any = None
        while True:
            try:
                awaited = resume(answer)
            except StopIteration:
                return
            due = self._count >= self._at if self._again else self._count == self._at
            self._count += 1
            self.reached |= due
            if due and not self._late:
                task.cancel()
            try:
                answer, resume = (yield awaited), self._work.send
                if due and self._late:
                    answer, resume = asyncio.CancelledError(), self._work.throw
            except asyncio.CancelledError as error:
                answer, resume = error, self._work.throw
