"""The limit of one wait on a connection: a local queue that has waited for so long queues again."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from django_distlock import Lease
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.table import wait_queue
from django_distlock.backends.table.queue_server import QueueServer
from tests.backends.tools import LIMIT, SERVERS, database_alias, lock_alias, sessions
from tests.backends.wait_queues import (
    connected,
    eventually,
    in_local_queue,
    inside,
    is_taken,
    left,
    noting,
    taken,
    wait_queues,
    waiter,
)


@pytest.fixture
def knocks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each wait on a connection, of 0.3 s at most, has come to; no waiter polls."""
    monkeypatch.setattr(BaseLockBackend, "queue_limit", LIMIT)
    monkeypatch.setattr(wait_queue, "LONGEST", 0.3)
    monkeypatch.setattr(wait_queue, "IDLE", 0.2)
    monkeypatch.setattr(wait_queue, "LOOK", 0.1)
    came: list[bool] = []
    enter = QueueServer.enter

    def noted(queue_connection: QueueServer, key: str, limit: float) -> bool:
        came.append(enter(queue_connection, key, limit))
        return came[-1]

    monkeypatch.setattr(QueueServer, "enter", noted)
    return came


@pytest.mark.parametrize("store", SERVERS)
def test_a_local_queue_whose_time_at_the_queue_connection_is_over_queues_anew(
    store: str, quiet: dict[str, Any], name: str, knocks: list[bool]
) -> None:
    """Again and again, on the same connection, until all are served in the order of the line."""
    holding, go = threading.Event(), threading.Event()
    served: list[int] = []

    def keep(_: Lease) -> None:
        holding.set()
        assert go.wait(LIMIT)

    with (
        database_alias("own", quiet),
        lock_alias("own", LOCATION="own", WAIT=LIMIT, TTL=60) as alias,
        lock_alias("twin", LOCATION="own", WAIT=LIMIT, TTL=60) as twin,
    ):
        taken(f"{name}:own", alias).release()  # opens it
        first = taken(name, twin)
        before = sessions(store)
        keeper = waiter(name, twin, keep)
        eventually(lambda: inside(twin) == 1)
        first.release()
        assert holding.wait(LIMIT)
        with ExitStack() as stack:
            stack.callback(keeper.result)
            for number in range(4):
                stack.callback(waiter(name, alias, noting(served, number)).result)
            stack.callback(go.set)
            eventually(lambda: knocks.count(False) >= 3)
            assert (served, in_local_queue(alias), inside(alias)) == ([], 4, 0)
            assert len(wait_queues(alias)._queue_connections._all) == 1
        assert served == [0, 1, 2, 3]
        eventually(lambda: left(alias) and left(twin))
        eventually(lambda: not is_taken("own", name, alias))
        eventually(lambda: connected(alias) == connected(twin) == 0)
        eventually(lambda: sessions(store) <= before)
