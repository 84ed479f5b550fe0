"""Other brokers than a Redis that runs: one that is restarted, and a folder of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from tests.celery.board import LONG
from tests.celery.sending import LIMIT, send
from tests.celery.test_once import holder_of, wait_until_free
from tests.servers import Redis

if TYPE_CHECKING:
    from tests.celery.board import Board


@pytest.fixture
def everywhere(broker: Redis) -> list[Any]:
    """Return the tasks of all stores: a worker is started once for all."""
    from tests.celery.tasks import TASKS

    return list(TASKS.values())


@pytest.fixture
def carrier() -> Iterator[Redis]:
    """Start a broker of this test alone, which keeps its messages on disk."""
    with Redis(persistent=True) as server:
        yield server


def test_a_broker_that_is_restarted(
    everywhere: list[Any], board: Board, tag: str, logs: Path, carrier: Redis
) -> None:
    """What runs keeps its lock, what is queued is run after, and what was not sent holds none."""
    from tests.celery.workers import Worker

    with Connection(carrier.url(), transport_options={"max_retries": 1}) as connection:
        queue = f"restart-{tag}"
        runs, waits, fails = ([f"{tag}-{k}-{n}" for n in range(len(everywhere))] for k in "rwf")
        # What the worker had taken to run next is given out again when its time of grace is over.
        given: dict[str, Any] = {"carrier": carrier.url(), "visibility": 1}
        worker = Worker(queue, logs, concurrency=len(everywhere), **given)
        try:
            for task, each in zip(everywhere, runs, strict=True):
                send(task.long, each, queue, connection=connection)
                board.wait_for(each, "begin", limit=LONG)
            queued = []
            for task, each in zip(everywhere, waits, strict=True):
                first = send(task.long, each, queue, connection=connection)
                assert send(task.long, each, queue, connection=connection).id == first.id
                queued.append(first)
            carrier.kill()
            for task, each in zip(everywhere, fails, strict=True):
                with pytest.raises(OperationalError):
                    send(task.long, each, queue, connection=connection)
                assert holder_of(task.long, each) is None
            carrier.start()
            for task, each in zip(everywhere, runs, strict=True):
                assert holder_of(task.long, each) is not None
                board.open_gate(each)
                board.wait_for(each, "begin", "end")
                wait_until_free(task.long, each)
            for each in waits:
                board.open_gate(each)
            for task, each, result in zip(everywhere, waits, queued, strict=True):
                assert result.get(timeout=LONG).startswith("done")
                board.wait_for(each, "begin", "end")
                wait_until_free(task.long, each)
        finally:
            worker.kill()


def test_a_folder_as_the_broker(
    everywhere: list[Any], board: Board, tag: str, logs: Path, tmp_path: Path
) -> None:
    """`filesystem://`, as on a host without any broker: the lock travels with the file."""
    from tests.celery.workers import Worker

    folders = {f"data_folder_{way}": str(tmp_path) for way in ("in", "out")}
    options = folders | {"control_folder": str(tmp_path / "control")}
    queue = f"folder-{tag}"
    with Connection("filesystem://", transport_options=options) as connection:
        sent = {}
        for number, task in enumerate(everywhere):
            each = f"{tag}{number}"
            first = send(task.once, each, queue, connection=connection)
            assert send(task.once, each, queue, connection=connection).id == first.id
            sent[each] = first
        worker = Worker(queue, logs, concurrency=2 * len(everywhere), folder=tmp_path)
        try:
            for task, (each, first) in zip(everywhere, sent.items(), strict=True):
                board.wait_for(each, "begin", limit=LONG)
                assert send(task.once, each, queue, connection=connection).id == first.id
                board.open_gate(each)
                assert first.get(timeout=LIMIT).startswith("done")
                board.wait_for(each, "begin", "end")
                wait_until_free(task.once, each)
            for number, task in enumerate(everywhere):
                each = f"{tag}-skip-{number}"
                held = send(task.skips, each, queue, connection=connection)
                board.wait_for(each, "begin")
                late = send(task.skips, each, queue, connection=connection)
                assert late.get(timeout=LIMIT) == "skipped"
                board.open_gate(each)
                assert held.get(timeout=LIMIT).startswith("done")
        finally:
            worker.kill()
