"""What the threads of a process share, used by eight at once, which are switched at any step.

Between any two steps of the interpreter, that is (on Python 3.12, two lines), as on a build of
Python without the global interpreter lock. With the lock, Python itself switches at some steps
only.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import django_distlock
from django_distlock import lock
from django_distlock.core import registry
from django_distlock.core.hold import Hold, State
from django_distlock.core.threads import Permits
from django_distlock.core.watchdog import Watchdog
from django_distlock.core.worker import Worker

from .tools import LIMIT, UnitBackend, eventually, make_hold, traced

THREADS = 8
TIMES = 30
APART = 7  # steps between two switches, on average
# Python 3.12 crashes where several threads trace opcodes, whatever they do: there it is each line.
OPCODES = sys.version_info[:2] != (3, 12)
STEP = "opcode" if OPCODES else "line"

PACKAGE = str(Path(django_distlock.__file__).parent)


def at_once(work: Callable[[int], object]) -> None:
    """Call ``work`` with a number on each of the threads, begun together."""
    begin = threading.Barrier(THREADS, timeout=LIMIT)

    def begun(number: int) -> None:
        begin.wait()
        with switched(random.Random(number)):
            work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(begun, number) for number in range(THREADS)]:
            done.result(6 * LIMIT)


@contextmanager
def switched(chance: random.Random) -> Iterator[None]:
    """Let other threads go on between steps of this one in the package."""

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = OPCODES
        if event == STEP and chance.random() * APART < 1:
            time.sleep(0)
        return trace

    with traced(trace, opcodes=OPCODES):
        yield


def test_no_update_under_a_lock_is_lost(backend: UnitBackend) -> None:
    total = 0

    def work(number: int) -> None:
        nonlocal total
        for _ in range(TIMES // 2):
            with lock("total", using=backend.alias, wait=6 * LIMIT):
                seen = total
                backend.holds("total")  # a step at which another thread may come in
                total = seen + 1

    at_once(work)
    assert total == THREADS * (TIMES // 2)
    assert not backend.holds("total")


def test_the_registry_forgets_all_that_was_released(backend: UnitBackend) -> None:
    def work(number: int) -> None:
        mine = lock(f"{number}", using=backend.alias, reentrant=True)
        for _ in range(TIMES // 2):
            with mine as outer, mine as inner:
                assert outer.fencing_token == inner.fencing_token
                assert registry.find(backend, backend.key(f"{number}")) is not None

    at_once(work)
    assert list(registry.every(backend)) == []
    # What earlier tests have dropped may be there still, of a backend that had this one's id.
    ours = {(id(backend), backend.key(f"{number}")) for number in range(THREADS)}
    assert [index for index in list(registry._registry) if index[:2] in ours] == []


def test_a_lease_ends_once(backend: UnitBackend) -> None:
    won: Counter[int] = Counter()
    told: list[Hold] = []
    holds = [make_hold(backend, f"{number}") for number in range(TIMES)]
    for hold in holds:
        hold.on_lost.append(told.append)

    def work(number: int) -> None:
        for each, hold in enumerate(holds):
            if number % 2:
                ended = hold.lose("the store says so")
            else:
                ended = hold.move(State.ACTIVE, State.RELEASED)
            won[number] += ended
            assert ended or not hold.is_active(), each

    at_once(work)
    lost = [hold for hold in holds if hold.state is State.LOST]
    assert sum(won.values()) == TIMES
    assert sorted(map(id, told)) == sorted(map(id, lost))


def test_each_lease_is_watched_until_it_ends(backend: UnitBackend) -> None:
    dog = Watchdog()
    kept: list[Hold] = []

    def work(number: int) -> None:
        for each in range(TIMES):
            hold = make_hold(
                backend, f"{number}-{each}", ttl=30.0 + each % 50, renewing=each % 3 > 0
            )
            dog.watch(hold)
            if each % 4:
                hold.move(State.ACTIVE, State.RELEASED)
            else:
                kept.append(hold)

    at_once(work)
    with dog._mutex:
        dog._schedule.sweep()
        assert {id(hold) for hold in dog._schedule.due(1e12)} == {id(hold) for hold in kept}
    dog.end()


def test_a_worker_does_each_job_once() -> None:
    worker = Worker("many")
    done: Counter[tuple[int, int]] = Counter()

    def job(number: int, each: int) -> None:
        done[number, each] += 1

    def work(number: int) -> None:
        for each in range(TIMES):
            worker.submit(partial(job, number, each), 0.001 * (each % 3))

    at_once(work)
    assert eventually(worker.is_idle)
    worker.close()
    assert len(done) == THREADS * TIMES
    assert set(done.values()) == {1}


def test_no_more_permits_than_there_are() -> None:
    permits = Permits(3)
    counting = threading.Lock()
    taken = most = 0

    def work(number: int) -> None:
        nonlocal taken, most
        for _ in range(TIMES):
            permit = permits.take()
            if permit is None:
                continue
            with counting:
                taken += 1
                most = max(most, taken)
            time.sleep(0.001)
            with counting:
                taken -= 1
            permits.release(permit)

    at_once(work)
    assert 1 <= most <= 3
    assert len(permits) == 0
