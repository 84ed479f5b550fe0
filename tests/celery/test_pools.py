"""Pools other than prefork: greenlets, all in one thread of the system, and threads."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from django_distlock import LockNotAcquiredError, locks
from tests.celery.conftest import STORES
from tests.celery.sending import LIMIT, send
from tests.celery.test_once import holder_of, wait_until_free

if TYPE_CHECKING:
    from tests.celery.board import Board
    from tests.celery.workers import Worker
    from tests.servers import Redis

QUEUE = "gevent"


class Busy(NamedTuple):
    """A worker, and by their tags the tasks that it was sent, and their results."""

    worker: Worker
    tasks: dict[str, Any]
    results: dict[str, Any]


@pytest.fixture(scope="module")
def worker(broker: Redis, logs: Path) -> Iterator[Worker]:
    """Start a worker with a pool of greenlets."""
    from tests.celery.workers import Worker

    started = Worker(QUEUE, logs, pool="gevent", concurrency=10)
    try:
        yield started.ready()
    finally:
        started.stop()


@pytest.fixture(params=STORES)
def tasks(request: pytest.FixtureRequest, worker: Worker) -> Any:
    """Return the tasks of each store."""
    from tests.celery.tasks import TASKS

    return TASKS[str(request.param)]


def test_greenlets_exclude_each_other(tasks: Any, board: Board, tag: str) -> None:
    """Also from the outside, and for longer than the ttl: the lock is renewed beside them."""
    first = send(tasks.renewed, tag, QUEUE)
    board.wait_for(tag, "begin")
    for _ in range(2):
        with pytest.raises(LockNotAcquiredError, match="Held by"):
            send(tasks.renewed, tag, QUEUE).get(timeout=LIMIT)
        time.sleep(1.6)  # twice; the ttl is 3
    using = tasks.renewed.name.split(".")[0]
    info = locks[using].inspect(f"renewed:{tag}")
    assert info is not None
    assert info.metadata["task_id"] == first.id
    board.open_gate(tag)
    assert first.get(timeout=LIMIT).startswith("done")
    board.wait_for(tag, "begin", "end")


def test_greenlets_wait_for_each_other(tasks: Any, board: Board, tag: str) -> None:
    results = [send(tasks.waits, tag, QUEUE) for _ in range(4)]
    board.open_gate(tag, 4)
    for result in results:
        assert result.get(timeout=LIMIT).startswith("done")
    assert board.said(tag) == ["begin", "end"] * 4


def test_it_is_queued_once(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.once, tag, QUEUE)
    board.wait_for(tag, "begin")
    assert send(tasks.once, tag, QUEUE).id == first.id
    board.open_gate(tag)
    first.get(timeout=LIMIT)
    wait_until_free(tasks.once, tag)


@contextmanager
def in_the_middle(kind: str, pool: str, logs: Path, board: Board, tag: str) -> Iterator[Busy]:
    """Start a worker that is in the middle of a task of this kind on each store."""
    from tests.celery.tasks import TASKS
    from tests.celery.workers import Worker

    own = Worker(f"own-{tag}", logs, pool=pool, concurrency=10)
    try:
        own.ready()
        chosen = {using: each for using, each in TASKS.items() if using in STORES}
        tasks = {f"{tag}{using}": getattr(each, kind) for using, each in chosen.items()}
        results = {each: send(task, each, own.queue) for each, task in tasks.items()}
        for each in tasks:
            board.wait_for(each, "begin")
        yield Busy(own, tasks, results)
    finally:
        own.kill()


@pytest.mark.parametrize("pool", ["gevent", "threads"])
def test_a_warm_shutdown(broker: Redis, logs: Path, board: Board, tag: str, pool: str) -> None:
    with in_the_middle("long", pool, logs, board, tag) as busy:
        busy.worker.signal(signal.SIGTERM)
        time.sleep(0.3)
        for each, result in busy.results.items():
            board.open_gate(each)
            assert result.get(timeout=LIMIT).startswith("done")
        assert busy.worker.ended() == 0
        for each, task in busy.tasks.items():
            assert holder_of(task, each) is None


@pytest.mark.parametrize("pool", ["gevent", "threads"])
def test_a_cold_shutdown(broker: Redis, logs: Path, board: Board, tag: str, pool: str) -> None:
    """Nobody waits for the tasks; their locks are free soon, at the latest when the ttl is over."""
    with in_the_middle("once", pool, logs, board, tag) as busy:
        busy.worker.signal(signal.SIGQUIT)
        busy.worker.ended()
        for each, task in busy.tasks.items():
            assert board.said(each) == ["begin"]
            wait_until_free(task, each, task.distlock.lock.ttl + 5)
