"""A broker, and a worker of each pool, for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery

from tests.servers import Redis, chosen, databases

if TYPE_CHECKING:
    from tests.celery.board import Board
    from tests.celery.workers import Worker

BROKERED = ("beat", "brokers", "faults", "once", "pools", "run_time")
collect_ignore = [] if "redis" in chosen() else [f"test_{each}.py" for each in BROKERED]


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app whose tasks run where they are sent."""
    made = Celery("eager", set_as_current=False)
    made.conf.update(task_always_eager=True, task_eager_propagates=True)
    yield made
    made.close()


@pytest.fixture(scope="session")  # of the process, as the app is, which reads where it is
def broker() -> Iterator[Redis]:
    """Start the broker, before the app is imported."""
    with Redis(persistent=False) as server:
        os.environ["DISTLOCK_TEST_BROKER"] = server.url()
        yield server
        del os.environ["DISTLOCK_TEST_BROKER"]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the workers write."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="package")
def workers(broker: Redis, logs: Path) -> Iterator[dict[str, Worker]]:
    """Start a worker of each pool, at the same time; its queue has the pool's name."""
    from tests.celery.workers import Worker

    found = {pool: Worker(pool, logs, pool=pool) for pool in ("prefork", "threads")}
    try:
        for worker in found.values():
            worker.ready()
        yield found
    finally:
        for worker in found.values():
            worker.stop()


@pytest.fixture
def board(broker: Redis) -> Iterator[Board]:
    """Return what tests and tasks talk by."""
    from tests.celery.board import Board

    board = Board()
    with board.client:
        yield board


@pytest.fixture
def tag() -> str:
    """Return a word that no other test uses."""
    return os.urandom(6).hex()


STORES = [*(store for store in databases() if store not in ("mariadb", "mysql")), "redis"]
"""Two databases are enough for the time that workers take."""


@pytest.fixture(params=STORES)
def tasks(request: pytest.FixtureRequest, workers: dict[str, Worker]) -> Any:
    """Return the tasks of each store, with workers that take them."""
    from tests.celery.tasks import TASKS

    return TASKS[str(request.param)]


@pytest.fixture(params=["prefork", "threads"])
def queue(request: pytest.FixtureRequest) -> str:
    """Return the queue of each pool."""
    return str(request.param)
