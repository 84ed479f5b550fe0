"""Workers that are killed or shut down while their tasks hold locks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery.exceptions import WorkerLostError

from tests.celery.board import LONG
from tests.celery.sending import LIMIT, send
from tests.celery.test_once import holder_of, wait_until_free

if TYPE_CHECKING:
    from tests.celery.board import Board
    from tests.celery.workers import Worker
    from tests.servers import Redis

Start = Callable[..., "Worker"]


@pytest.fixture
def start(broker: Redis, logs: Path, tag: str) -> Iterator[Start]:
    """Give a function that starts a worker of this test alone; it is ended after."""
    from tests.celery.workers import Worker

    started: list[Worker] = []

    def make(**more: Any) -> Worker:
        started.append(Worker(f"own-{tag}", logs, **more))
        return started[-1].ready()

    yield make
    for worker in started:
        worker.kill()


@pytest.fixture
def everywhere(broker: Redis) -> list[Any]:
    """Return the tasks of all stores: a worker is started, and killed, once for all."""
    from tests.celery.tasks import TASKS

    return list(TASKS.values())


def begun(tasks: list[Any], board: Board, tag: str, worker: Worker) -> dict[str, Any]:
    """Send tasks, each with a tag of its own, and wait until they hold their locks."""
    results = {}
    for number, task in enumerate(tasks):
        results[f"{tag}{number}"] = send(task, f"{tag}{number}", worker.queue)
    for each in results:
        board.wait_for(each, "begin")
    return results


def test_a_killed_worker(everywhere: list[Any], board: Board, tag: str, start: Start) -> None:
    """Its messages are delivered again, and take the locks that their first runs have left."""
    late = [each.late for each in everywhere]
    tasks = late + [each.late_plain for each in everywhere]
    worker = start(concurrency=len(tasks))
    results = begun(tasks, board, tag, worker)
    worker.kill()
    for task, (each, first) in zip(late, results.items(), strict=False):
        assert send(task, each, worker.queue).id == first.id  # it is there still
    time.sleep(1.1)  # the visibility timeout: then the broker gives them to the next worker
    start(visibility=1, concurrency=len(tasks))
    for each in results:
        board.open_gate(each)
    for each, result in results.items():
        assert result.get(timeout=LONG).startswith("done")
        board.wait_for(each, "begin", "begin", "end")
    for number, task in enumerate(late):
        wait_until_free(task, f"{tag}{number}")


def test_a_message_delivered_twice_runs_once_at_a_time(
    everywhere: list[Any], board: Board, tag: str, start: Start
) -> None:
    """The broker gives away what is not acknowledged for long, though it still runs."""
    tasks = [each.late for each in everywhere] + [each.late_plain for each in everywhere]
    results = begun(tasks, board, tag, start(concurrency=len(tasks)))
    time.sleep(1.1)
    start(visibility=1, concurrency=len(tasks))
    refused: set[str] = set()
    end = time.monotonic() + LONG
    while len(refused) < len(results):  # each by the second worker, to which it comes again
        states = {each: (result.state, result.result) for each, result in results.items()}
        assert time.monotonic() < end, [(*states[each], board.said(each)) for each in states]
        refused |= {each for each, (state, _) in states.items() if state == "RETRY"}
    assert {each: board.said(each) for each in results} == {each: ["begin"] for each in results}
    for each in results:
        board.open_gate(each, 2)
    for each in results:
        board.wait_until(each, lambda said: said[:2] == ["begin", "end"])


def test_warm_shutdown(everywhere: list[Any], board: Board, tag: str, start: Start) -> None:
    tasks = [each.long for each in everywhere] + [each.raises for each in everywhere]
    worker = start(concurrency=len(tasks))
    results = begun(tasks, board, tag, worker)
    worker.signal(signal.SIGTERM)
    time.sleep(0.3)
    for each in results:
        board.open_gate(each)
    for each, result in results.items():
        assert result.get(timeout=LIMIT).startswith("done")
        board.wait_for(each, "begin", "end")
    assert worker.ended() == 0
    for number, each in enumerate(everywhere):
        assert holder_of(each.long, f"{tag}{number}") is None


def test_cold_shutdown(everywhere: list[Any], board: Board, tag: str, start: Start) -> None:
    tasks = [each.long for each in everywhere]
    worker = start(concurrency=len(tasks))
    results = begun(tasks, board, tag, worker)
    worker.signal(signal.SIGQUIT)
    worker.ended()
    for number, (each, task) in enumerate(zip(results, tasks, strict=True)):
        assert board.said(each) == ["begin"]
        wait_until_free(task, f"{tag}{number}")  # within 5 s of a ttl of 30


def test_a_process_of_the_pool_that_is_killed(
    everywhere: list[Any], board: Board, tag: str, workers: Any
) -> None:
    """As the kernel does when memory is short; the worker frees what it held."""
    for number, each in enumerate(everywhere):
        result = send(each.long, f"{tag}{number}")
        board.wait_for(f"{tag}{number}", "begin")
        os.kill(board.entries(f"{tag}{number}")[0][1], signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            result.get(timeout=LIMIT)
        wait_until_free(each.long, f"{tag}{number}")
