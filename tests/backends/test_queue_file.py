"""The file beside SQLite's that its waiters queue on."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from django_distlock import InvalidLockBackendError, lock, locks
from tests.backends.test_statements import using
from tests.backends.tools import LIMIT, STORES, lock_alias, table
from tests.backends.wait_queues import connected, eventually, inside, left, taken, waiter

pytestmark = pytest.mark.parametrize("store", [store for store in STORES if store == "sqlite"])


def path_of(quiet: dict[str, Any]) -> Path:
    """Return the path of the file beside the database's."""
    return Path(os.path.realpath(quiet["NAME"]) + "-distlock")


def wait_once(alias: str, name: str) -> None:
    """Let a thread wait inside for a lock, and have it."""
    first = taken(name, alias)
    waiting = waiter(name, alias)
    eventually(lambda: inside(alias) == 1)
    first.release()
    waiting.result()
    eventually(lambda: left(alias))


def test_there_is_none_before_somebody_waits(quiet: dict[str, Any], name: str) -> None:
    path_of(quiet).unlink(missing_ok=True)
    with using(quiet, WAIT=LIMIT) as alias:
        with lock(name, using=alias):
            pass
        assert not path_of(quiet).exists()
        wait_once(alias, name)
    assert path_of(quiet).stat().st_size == 0
    like = Path(quiet["NAME"]).stat()
    made = path_of(quiet).stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o666) == (
        like.st_uid,
        like.st_gid,
        made.st_mode & like.st_mode & 0o666,
    )


def test_one_file_serves_all_names(quiet: dict[str, Any], name: str) -> None:
    with using(quiet, WAIT=LIMIT) as alias:
        first, other = taken(f"{name}:1", alias), taken(f"{name}:2", alias)
        waiting = [waiter(f"{name}:{number}", alias) for number in (1, 2)]
        eventually(lambda: inside(alias) == 2)  # neither is in the other's way
        assert connected(alias) == 2
        first.release()
        other.release()
        for thread in waiting:
            thread.result()
        eventually(lambda: left(alias))


def test_where_it_cannot_be_opened_waiters_poll(
    quiet: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path_of(quiet).unlink(missing_ok=True)
    path_of(quiet).mkdir()
    try:
        with using(quiet, WAIT=LIMIT) as alias:
            first = taken(name, alias)
            waiting = waiter(name, alias)
            with caplog.at_level(logging.WARNING, "django_distlock.table"):
                eventually(lambda: "waiters poll" in caplog.text)
            assert "-distlock: " in caplog.text
            first.release()
            waiting.result()
    finally:
        path_of(quiet).rmdir()


def test_a_database_in_memory_has_none(store: str) -> None:
    assert not table("memory").notifies
    with (
        lock_alias("wrong", LOCATION="memory", OPTIONS={"WAITING": "queue"}) as alias,
        pytest.raises(InvalidLockBackendError, match="SQLite has no queue to wait in"),
    ):
        locks[alias]


def test_a_thread_that_waits_ends_no_later_than_the_lock(quiet: dict[str, Any], name: str) -> None:
    """The kernel cannot be told to wait no longer, so the thread of a closed alias stays."""
    with using(quiet, WAIT=LIMIT) as mine, lock_alias("twin", LOCATION="own", WAIT=LIMIT) as twin:
        first = taken(name, mine)
        kept = waiter(name, mine)
        eventually(lambda: inside(mine) == 1)
        taken(f"{name}:2", twin).release()  # opens it
        assert lock(name, using=twin, wait=0.1).acquire() is None
        (queue_connection,) = table(twin)._wait_queues._queue_connections._all  # type: ignore[union-attr]
        table(twin).close()
        assert queue_connection.is_open
        first.release()
        kept.result()
        eventually(lambda: not queue_connection.is_open)
