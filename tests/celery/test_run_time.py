"""Locks that a task takes when it is run, by real workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from django_distlock import LeaseLostError, LockNotAcquiredError, lock, locks
from tests.celery.sending import LIMIT, send

if TYPE_CHECKING:
    from tests.celery.board import Board


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
    result = send(tasks.raises, tag, queue)
    board.wait_for(tag, "begin")
    time.sleep(3.2)  # longer than the ttl
    using = tasks.raises.name.split(".")[0]
    info = locks[using].inspect(f"raise:{tag}")
    assert info is not None
    assert info.metadata == {"task": tasks.raises.name, "task_id": result.id}
    board.open_gate(tag)
    result.get(timeout=LIMIT)
    assert locks[using].inspect(f"raise:{tag}") is None


def test_min_hold_outlasts_the_task(tasks: Any, tag: str) -> None:
    assert send(tasks.holds, tag).get(timeout=LIMIT) == "done"
    assert send(tasks.holds, tag).get(timeout=LIMIT) == "skipped"
    using = tasks.holds.name.split(".")[0]
    with lock(f"held:{tag}", using=using, wait=LIMIT):  # it ends by itself
        pass


def test_min_hold_is_not_for_a_task_that_failed(tasks: Any, tag: str) -> None:
    failed = tasks.holds.apply_async((tag, True), queue="prefork")
    with pytest.raises(OSError, match="it failed"):
        failed.get(timeout=LIMIT)
    assert send(tasks.holds, tag).get(timeout=LIMIT) == "done"


def test_autoretry_for_takes_the_lock_anew(tasks: Any, board: Board, tag: str) -> None:
    result = send(tasks.autoretried, tag)
    board.wait_for(tag, "begin")
    other = send(tasks.autoretried, tag)  # its contention is retried by Celery
    board.open_gate(tag, 3)
    assert result.get(timeout=LIMIT) == "done"
    assert other.get(timeout=LIMIT) == "done"


def test_the_soft_time_limit_frees(tasks: Any, board: Board, tag: str) -> None:
    with pytest.raises(SoftTimeLimitExceeded):
        send(tasks.soft_plain, tag).get(timeout=LIMIT)
    using = tasks.soft_plain.name.split(".")[0]
    assert locks[using].inspect(f"soft plain:{tag}") is None  # of a ttl of 30
    assert board.said(tag) == ["begin"]


def test_a_lost_lease_is_the_tasks_error(tasks: Any, board: Board, tag: str) -> None:
    using = tasks.renewed.name.split(".")[0]
    result = send(tasks.renewed, tag)
    board.wait_for(tag, "begin")
    locks[using].force_release(f"renewed:{tag}")
    with lock(f"renewed:{tag}", using=using, wait=LIMIT) as next_one:
        time.sleep(2.3)  # a third of the ttl is over, after which it is told; not all of it
        board.open_gate(tag)
        with pytest.raises(LeaseLostError):
            result.get(timeout=LIMIT)
        assert board.said(tag) == ["begin"]  # current_lease().check() has stopped it
        next_one.renew()  # and its end has freed nothing of the next holder's
