"""Queue-once: the lock is taken when a task is sent, and travels with its message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from celery import chain, chord, group
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from kombu.exceptions import EncodeError, OperationalError

from django_distlock import LockNotAcquiredError, lock, locks
from django_distlock.contrib.celery.spec import HEADER, Ticket
from tests.celery.sending import LIMIT, send

if TYPE_CHECKING:
    from tests.celery.board import Board
    from tests.celery.workers import Worker
    from tests.servers import Redis


class Unsendable:
    """What JSON cannot hold, and the template of a name can."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __format__(self, spec: str) -> str:
        return self.tag


def holder_of(task: Any, tag: str) -> Any:
    """Return what the store says of a task's lock."""
    using = task.name.split(".")[0]
    return locks[using].inspect(task.distlock.lock.name.format(tag=tag))


def wait_until_free(task: Any, tag: str, limit: float = 5.0) -> None:
    """Wait until nobody holds a task's lock any more."""
    end = time.monotonic() + limit
    while holder_of(task, tag) is not None:
        assert time.monotonic() < end, holder_of(task, tag)
        time.sleep(0.02)


def test_a_duplicate_is_given_the_task_that_is_there(
    tasks: Any, board: Board, tag: str, queue: str
) -> None:
    first = send(tasks.once, tag, queue)
    queued = send(tasks.once, tag, queue)
    board.wait_for(tag, "begin")
    running = send(tasks.once, tag, queue)
    assert first.id == queued.id == running.id
    board.open_gate(tag)
    assert running.get(timeout=LIMIT).startswith("done")
    assert board.said(tag) == ["begin", "end"]
    wait_until_free(tasks.once, tag)
    again = send(tasks.once, tag, queue)
    assert again.id != first.id
    board.open_gate(tag)
    again.get(timeout=LIMIT)


def test_what_is_queued_once_is_sent_again_as_soon_as_it_runs(
    tasks: Any, board: Board, tag: str, queue: str
) -> None:
    first = send(tasks.queued, tag, queue)
    board.wait_for(tag, "begin")
    wait_until_free(tasks.queued, tag)
    second = send(tasks.queued, tag, queue)
    assert second.id != first.id
    board.open_gate(tag, 2)
    assert (first.get(timeout=LIMIT), second.get(timeout=LIMIT)) == ("done", "done")
    assert board.said(tag) == ["begin", "begin"]
    wait_until_free(tasks.queued, tag)


def test_another_key_is_another_task(tasks: Any, board: Board, tag: str) -> None:
    first, other = send(tasks.once, tag), send(tasks.once, tag + "x")
    assert first.id != other.id
    board.open_gate(tag)
    board.open_gate(tag + "x")
    first.get(timeout=LIMIT)
    other.get(timeout=LIMIT)


def test_a_lock_waits_in_the_queue_for_longer_than_its_ttl(
    tasks: Any, board: Board, tag: str
) -> None:
    first = send(tasks.once, tag, countdown=3.6)  # ttl 3
    time.sleep(3.2)
    assert send(tasks.once, tag).id == first.id
    board.open_gate(tag)
    first.get(timeout=LIMIT)
    wait_until_free(tasks.once, tag)


def test_retries_keep_the_lock(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.retried, tag)
    board.open_gate(tag)
    end = time.monotonic() + LIMIT
    while first.state != "RETRY":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert send(tasks.retried, tag).id == first.id
    board.wait_for(tag, "begin", "begin")
    assert send(tasks.retried, tag).id == first.id
    board.open_gate(tag)
    assert first.get(timeout=LIMIT) == "done"
    wait_until_free(tasks.retried, tag)


def test_a_failure_frees(tasks: Any, tag: str) -> None:
    with pytest.raises(OSError, match="it failed"):
        send(tasks.fails, tag).get(timeout=LIMIT)
    wait_until_free(tasks.fails, tag)


def test_a_task_that_cannot_be_published_holds_nothing(tasks: Any, tag: str) -> None:
    with pytest.raises(EncodeError):
        tasks.once.apply_async((), {"tag": Unsendable(tag)}, queue="prefork")
    assert holder_of(tasks.once, tag) is None


def test_without_a_broker_it_holds_nothing(broker: Redis, tag: str) -> None:
    from tests.celery.tasks import TASKS

    once = TASKS["redis"].once
    once_only = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    nowhere = once.app.connection("redis://127.0.0.1:1/0", transport_options=once_only)
    with pytest.raises(OperationalError):
        send(once, tag, connection=nowhere)
    assert holder_of(once, tag) is None


def test_a_revoked_task_frees(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.once, tag, countdown=2)
    tasks.once.app.control.revoke(first.id)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=LIMIT)
    wait_until_free(tasks.once, tag)
    assert board.said(tag) == []


def test_an_expired_task_frees(tasks: Any, board: Board, tag: str) -> None:
    first = send(tasks.once, tag, countdown=1, expires=0.5)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=LIMIT)
    wait_until_free(tasks.once, tag, 3)
    assert board.said(tag) == []


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_a_terminated_task_frees_before_the_ttl(
    workers: dict[str, Worker], tasks: Any, board: Board, tag: str, signal: str
) -> None:
    first = send(tasks.long, tag)
    board.wait_for(tag, "begin")
    tasks.long.app.control.revoke(first.id, terminate=True, signal=signal)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=LIMIT)
    wait_until_free(tasks.long, tag)  # within 5 s of a ttl of 30
    ((said, process),) = board.entries(tag)
    assert said == "begin"
    workers["prefork"].wait_until_replaced(process)


def test_the_soft_time_limit_frees(tasks: Any, board: Board, tag: str) -> None:
    with pytest.raises(SoftTimeLimitExceeded):
        send(tasks.soft, tag).get(timeout=LIMIT)
    wait_until_free(tasks.soft, tag)
    assert board.said(tag) == ["begin"]


def test_the_hard_time_limit_frees_before_the_ttl(
    workers: dict[str, Worker], tasks: Any, board: Board, tag: str
) -> None:
    with pytest.raises(TimeLimitExceeded):
        send(tasks.hard, tag).get(timeout=LIMIT)
    wait_until_free(tasks.hard, tag)  # within 5 s of a ttl of 30
    ((said, process),) = board.entries(tag)
    assert said == "begin"
    workers["prefork"].wait_until_replaced(process)


def test_in_a_chord_nobody_is_dropped(tasks: Any, board: Board, tag: str, queue: str) -> None:
    from tests.celery.tasks import total

    counted = tasks.counted
    header = [counted.s(tag, number).set(queue=queue) for number in (1, 2, 3)]
    assert chord(header)(total.s(tag).set(queue=queue)).get(timeout=LIMIT) == 6
    board.wait_for(tag, "run", "run", "run", "total")
    wait_until_free(counted, tag)


def test_in_a_group_and_a_chain_nobody_is_dropped(tasks: Any, tag: str) -> None:
    counted = tasks.counted
    made = group(counted.si(tag, number).set(queue="prefork") for number in (1, 2))()
    assert made.get(timeout=LIMIT) == [1, 2]
    steps = [counted.si(tag, number).set(queue="prefork") for number in (3, 4)]
    assert chain(*steps)().get(timeout=LIMIT) == 4


def test_who_holds_the_lock_without_a_task_is_said(tasks: Any, tag: str) -> None:
    using = tasks.once.name.split(".")[0]
    with (
        lock(f"once:{tag}", using=using),
        pytest.raises(LockNotAcquiredError, match="something else"),
    ):
        send(tasks.once, tag)


def test_a_message_without_a_lock_takes_it_when_run(tasks: Any, board: Board, tag: str) -> None:
    first = tasks.once.app.send_task(tasks.once.name, (tag,), queue="prefork")
    board.wait_for(tag, "begin")
    assert send(tasks.once, tag).id == first.id
    board.open_gate(tag)
    first.get(timeout=LIMIT)
    wait_until_free(tasks.once, tag)


def test_the_header_of_another_task_counts_for_nothing(tasks: Any, board: Board, tag: str) -> None:
    headers = Ticket("another", "owner", "other-id").added_to({"X-Mine": "1"})
    first = send(tasks.once, tag, headers=headers)
    assert headers[HEADER]["task_id"] == "other-id"
    board.wait_for(tag, "begin")
    assert send(tasks.once, tag).id == first.id
    board.open_gate(tag)
    first.get(timeout=LIMIT)
