"""The limit at a server's door: a line that has stood there for so long queues anew."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from django_distlock import Lease
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.table import room
from django_distlock.backends.table.serverdoor import ServerDoor
from tests.backends.rooms import (
    connected,
    eventually,
    in_line,
    inside,
    is_taken,
    left,
    noting,
    rooms,
    taken,
    waiter,
)
from tests.backends.tools import LIMIT, SERVERS, database_alias, lock_alias, sessions


@pytest.fixture
def knocks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each wait at a door, which may last 0.3 s, has come to; nobody looks by himself."""
    monkeypatch.setattr(BaseLockBackend, "queue_limit", LIMIT)
    monkeypatch.setattr(room, "LONGEST", 0.3)
    monkeypatch.setattr(room, "IDLE", 0.2)
    monkeypatch.setattr(room, "LOOK", 0.1)
    came: list[bool] = []
    enter = ServerDoor.enter

    def noted(door: ServerDoor, key: str, limit: float) -> bool:
        came.append(enter(door, key, limit))
        return came[-1]

    monkeypatch.setattr(ServerDoor, "enter", noted)
    return came


@pytest.mark.parametrize("store", SERVERS)
def test_a_line_whose_time_at_the_door_is_over_queues_anew(
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
            assert (served, in_line(alias), inside(alias)) == ([], 4, 0)
            assert len(rooms(alias)._doors._all) == 1
        assert served == [0, 1, 2, 3]
        eventually(lambda: left(alias) and left(twin))
        eventually(lambda: not is_taken("own", name, alias))
        eventually(lambda: connected(alias) == connected(twin) == 0)
        eventually(lambda: sessions(store) <= before)
