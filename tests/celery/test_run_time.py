"""Locks that a task takes when it is run, by real workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_distlock import LockNotAcquiredError, locks
from tests.servers import databases

if TYPE_CHECKING:
    from tests.celery.board import Board
    from tests.celery.workers import Worker

LIMIT = 20
Workers = dict[str, "Worker"]


@pytest.fixture(params=[*databases(), "redis"])
def tasks(request: pytest.FixtureRequest, workers: Workers) -> Any:
    """The tasks of each store."""
    from tests.celery.tasks import TASKS

    return TASKS[str(request.param)]


@pytest.fixture(params=["prefork", "threads"])
def queue(request: pytest.FixtureRequest) -> str:
    """The queue of each pool."""
    return str(request.param)


def send(task: Any, tag: str, queue: str = "prefork") -> Any:
    """Send a task to the worker of a pool."""
    return task.apply_async((tag,), queue=queue)


def test_raise(tasks: Any, board: Board, tag: str, queue: str) -> None:
    first = send(tasks.raises, tag, queue)
    board.wait_for(tag, "begin")
    with pytest.raises(LockNotAcquiredError, match="Held by"):
        send(tasks.raises, tag, queue).get(timeout=LIMIT)
    board.open_gate(tag)
    assert first.get(timeout=LIMIT).startswith("done")
    board.wait_for(tag, "begin", "end")


def test_skip(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.skips, tag)
    board.wait_for(tag, "begin")
    assert send(tasks.skips, tag).get(timeout=LIMIT) == "skipped"
    board.open_gate(tag)
    first.get(timeout=LIMIT)
    board.wait_for(tag, "begin", "end")


def test_wait(tasks: Any, board: Board, tag: str) -> None:
    first, second = send(tasks.waits, tag), send(tasks.waits, tag)
    board.wait_for(tag, "begin")
    board.open_gate(tag)
    board.wait_for(tag, "begin", "end", "begin")
    board.open_gate(tag)
    assert first.get(timeout=LIMIT)
    assert second.get(timeout=LIMIT)


def test_retry(tasks: Any, board: Board, tag: str) -> None:
    first, second = send(tasks.retries, tag), send(tasks.retries, tag)
    board.wait_for(tag, "begin")
    board.open_gate(tag, 2)
    assert first.get(timeout=LIMIT)
    assert second.get(timeout=LIMIT)
    board.wait_for(tag, "begin", "end", "begin", "end")


def test_a_limit_of_retries(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.retries_once, tag)
    board.wait_for(tag, "begin")
    with pytest.raises(LockNotAcquiredError):
        send(tasks.retries_once, tag).get(timeout=LIMIT)
    board.open_gate(tag)
    first.get(timeout=LIMIT)


def test_callable(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.calls, tag)
    board.wait_for(tag, "begin")
    said = send(tasks.calls, tag).get(timeout=LIMIT)
    assert said == f"instead of {tasks.calls.name} for {tag}"
    board.open_gate(tag)
    first.get(timeout=LIMIT)


def test_a_lock_is_renewed_in_the_pool_and_shows_its_task(
    board: Board, tag: str, queue: str, tasks: Any
) -> None:
    import time

    result = send(tasks.raises, tag, queue)
    board.wait_for(tag, "begin")
    time.sleep(0.3)
    using = tasks.raises.name.split(".")[0]
    info = locks[using].inspect(f"raise:{tag}")
    assert info is not None
    assert info.metadata == {"task": tasks.raises.name, "task_id": result.id}
    board.open_gate(tag)
    result.get(timeout=LIMIT)
    assert locks[using].inspect(f"raise:{tag}") is None
