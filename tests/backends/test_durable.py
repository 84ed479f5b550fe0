"""DURABLE False on PostgreSQL: no commit of a lock waits for the disk, and what that costs.

To be certain what is on the disk, the process that writes it a moment later is made to stand still.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction

from django_distlock import InvalidLockBackendError, Lease, LeaseLostError, lock, locks
from tests.backends.tools import (
    SERVERS,
    STORES,
    database_alias,
    elsewhere,
    lock_alias,
    one_value,
)
from tests.servers import DATABASES, ByStore, DatabaseServer, watcher

OTHERS = [store for store in STORES if store != "postgresql"]
HASTY = {"DURABLE": False}


@pytest.fixture(scope="module", params=[store for store in SERVERS if store == "postgresql"])
def durable_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server that waits for its disk at each commit, and does nothing of its own accord."""
    with DATABASES[request.param](durable=True, options=["-c", "autovacuum=off"]) as server:
        with database_alias("own", server.create_database("own")):
            call_command("migrate", database="own", verbosity=0)
            with connections["own"].cursor() as cursor:
                cursor.execute("CREATE TABLE saved (number integer)")
        yield server


@pytest.fixture
def server(durable_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """The server, with the lock aliases "lasting" and "hasty" on it."""
    settings = durable_server.settings("own") | {"CONN_MAX_AGE": None}
    with (
        database_alias("own", settings),
        lock_alias("lasting", LOCATION="own"),
        lock_alias("hasty", LOCATION="own", OPTIONS=HASTY),
    ):
        yield durable_server


def test_what_check_deploy_says(server: DatabaseServer) -> None:
    """The server waits for its disk; a session that does not is told, unless that was asked for."""
    assert locks["lasting"].check_deploy() == []
    assert locks["hasty"].check_deploy() == []
    with connections["own"].cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    (message,) = locks["lasting"].check_deploy()
    assert message.id == "distlock.W016"
    assert "synchronous_commit" in message.msg
    assert locks["hasty"].check_deploy() == []
    connections["own"].close()


@contextmanager
def nothing_written_later(server: DatabaseServer) -> Iterator[None]:
    """Let no process of the server write what a commit did not wait for."""
    background = "backend_type IN ('walwriter', 'background writer', 'checkpointer')"
    pids = server.execute(f"SELECT pid FROM pg_stat_activity WHERE {background}")
    server.execute("CHECKPOINT")
    for pid in pids.split():
        watcher.send(int(pid), signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids.split():
            watcher.send(int(pid), signal.SIGCONT)


def behind() -> bool:
    """Tell whether something is committed that is not on the disk."""
    # What is between pages of the log counts for nothing.
    sql = "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() > 64"
    return bool(one_value("own", sql))


def save() -> None:
    """Commit something, and wait for the disk."""
    with connections["own"].cursor() as cursor:
        cursor.execute("INSERT INTO saved VALUES (1)")


def acquire(name: str, alias: str) -> Lease:
    lease = lock(name, using=alias, ttl=60, renew=False).acquire()
    assert lease
    return lease


@pytest.mark.parametrize(("alias", "waits"), [("lasting", True), ("hasty", False)])
def test_whether_a_commit_waits_for_the_disk(
    server: DatabaseServer, name: str, alias: str, waits: bool
) -> None:
    leases: list[Lease] = []

    def renew_many() -> None:
        claims = [lease._hold.claim for lease in leases]
        assert locks[alias].call("renew_many", claims) == [True] * len(claims)

    deeds: list[tuple[bool, Callable[[], Any]]] = [
        (waits, lambda: leases.append(acquire(name, alias))),  # of a name never seen
        (waits, lambda: leases[0].renew()),
        (waits, renew_many),
        (False, lambda: leases[0].release()),  # which nobody relies on
        (waits, lambda: leases.append(acquire(name, alias))),
        # With little wait left another statement is sent.
        (
            waits,
            lambda: leases.append(lock(f"{name}:2", using=alias, wait=0).acquire() or leases[0]),
        ),
    ]
    with nothing_written_later(server):
        for is_waited_for, deed in deeds:
            save()
            assert not behind()
            deed()
            assert behind() is not is_waited_for
    for lease in leases[1:]:
        lease.release()


def test_a_refusal_and_the_session_have_nothing_of_it(server: DatabaseServer, name: str) -> None:
    setting = "SHOW synchronous_commit"
    holder = elsewhere(lambda: acquire(name, "hasty"))
    assert lock(name, using="hasty", wait=0).acquire() is None
    with lock(f"{name}:2", using="hasty") as lease:
        assert one_value("own", setting) == "on"
        lease.renew()
        assert one_value("own", setting) == "on"
    assert one_value("own", setting) == "on"
    with transaction.atomic("own"):
        with lock(f"{name}:2", using="hasty"):
            assert one_value("own", setting) == "on"
        assert one_value("own", setting) == "on"
    holder.release()


def test_a_crash_forgets_a_grant_that_was_not_waited_for(server: DatabaseServer, name: str) -> None:
    """Another is granted the lock; the first is told by its renewal, and its token is lower."""
    with nothing_written_later(server):
        lasting = acquire(f"{name}:lasting", "lasting")
        hasty = acquire(f"{name}:hasty", "hasty")
        server.kill()
    server.start()
    connections["own"].close()
    assert elsewhere(lock(f"{name}:lasting", using="lasting", wait=0).acquire) is None
    lasting.renew()
    following = elsewhere(lambda: acquire(f"{name}:hasty", "hasty"))
    assert following.fencing_token > hasty.fencing_token
    with pytest.raises(LeaseLostError):
        hasty.renew()
    following.release()
    lasting.release()


def test_a_later_commit_that_waits_keeps_the_grant(server: DatabaseServer, name: str) -> None:
    """The log is one: what the holder then saves for good, saves its lock as well."""
    with nothing_written_later(server):
        lease = acquire(name, "hasty")
        assert behind()
        save()
        server.kill()
    server.start()
    connections["own"].close()
    assert elsewhere(lock(name, using="hasty", wait=0).acquire) is None
    lease.renew()
    lease.release()


@pytest.mark.parametrize("again", [False, True])
def test_a_crash_may_undo_a_release_and_no_grant_after_it(
    server: DatabaseServer, name: str, again: bool
) -> None:
    """The log is one: what waits for the disk takes along what did not."""
    with nothing_written_later(server):
        lease = acquire(name, "lasting")
        lease.release()
        assert behind()
        if again:
            lease = acquire(name, "lasting")
            assert not behind()
        server.kill()
    server.start()
    connections["own"].close()
    seen = locks["lasting"].inspect(name)  # for the rest of its ttl nobody gets it
    assert seen
    assert seen.fencing_token == lease.fencing_token
    if again:
        lease.renew()
        lease.release()
    else:
        locks["lasting"].force_release(name)
    following = acquire(name, "lasting")
    assert following.fencing_token > lease.fencing_token
    following.release()


@pytest.mark.parametrize("store", OTHERS)
def test_it_is_refused_where_it_would_do_nothing(store: str) -> None:
    with lock_alias("wrong", LOCATION=store, OPTIONS=HASTY) as alias:
        with pytest.raises(InvalidLockBackendError, match="False is for PostgreSQL only") as info:
            locks[alias]
        instead = ByStore(mariadb="innodb_flush_log_at_trx_commit", sqlite="PRAGMA synchronous")
        assert instead[store] in str(info.value)
    with lock_alias("right", LOCATION=store, OPTIONS={"DURABLE": True}) as alias:
        assert locks[alias].opts == {"DURABLE": True}


@pytest.mark.parametrize("value", ["False", 0, None])
def test_it_is_true_or_false(value: Any) -> None:
    with (
        lock_alias("wrong", LOCATION="default", OPTIONS={"DURABLE": value}) as alias,
        pytest.raises(InvalidLockBackendError, match="True or False is expected"),
    ):
        locks[alias]


def test_it_needs_sql_of_our_own(server: DatabaseServer) -> None:
    options = HASTY | {"SQL": "portable"}
    with (
        lock_alias("wrong", LOCATION="own", OPTIONS=options) as alias,
        pytest.raises(InvalidLockBackendError, match="leave out 'SQL': 'portable'"),
    ):
        locks[alias]


def test_renewing_in_the_background(server: DatabaseServer, name: str) -> None:
    with lock(name, using="hasty", ttl=2.4) as lease:
        time.sleep(2.7)
        lease.check()
