"""Behind a pooler in transaction mode, which gives a session to another client at each commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
from django.db import connections

from django_distlock import (
    InvalidLockBackendError,
    Lease,
    LeaseLostError,
    LockBackendError,
    lock,
    locks,
)
from django_distlock.core.watchdog import worker_of
from django_distlock.testing.taps import tap
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    elsewhere,
    lock_alias,
    one_value,
    soon,
)
from tests.conftest import SERVERS as STARTED
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgreSQL

KINDS = {
    "table": "django_distlock.backends.table.TableBackend",
    "row": "django_distlock.backends.row.RowBackend",
    "version": "django_distlock.backends.version.VersionBackend",
}
POOLED = [store for store in SERVERS if store == "postgresql"]
# But for what an idle session of the advisory backend has.
LEFT = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
SESSIONS = 4  # of the server's, for all clients

pytestmark = pytest.mark.parametrize("store", POOLED)
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def pooler() -> Iterator[PgBouncer]:
    """A pooler before the server of the tests."""
    server = STARTED["postgresql"]
    assert isinstance(server, PostgreSQL)
    with PgBouncer(server, sessions=SESSIONS) as pooler:
        yield pooler


@pytest.fixture
def pooled(store: str, pooler: PgBouncer) -> Iterator[str]:
    """The alias "pooled" of DATABASES: the tests' database by way of the pooler."""
    with database_alias("pooled", pooler.settings(connections.settings[store]["NAME"])):
        yield "pooled"


@pytest.fixture
def alias(kind: str, pooled: str) -> Iterator[str]:
    """The alias "pooled" of DISTLOCKS."""
    options = {"COMMAND_TIMEOUT": 1.0}
    with lock_alias("pooled", BACKEND=KINDS[kind], LOCATION=pooled, PREFIX=kind, OPTIONS=options):
        yield "pooled"


def taken(name: str, **options: Any) -> Lease:
    """Take a lock."""
    lease: Lease | None = lock(name, using="pooled", **options).acquire()
    assert lease
    return lease


def test_it_is_a_pooler_in_transaction_mode(pooled: str) -> None:
    """Else the other tests would show nothing: what one client sets, another one finds."""
    with connections[pooled].cursor() as cursor:
        for number in range(SESSIONS):
            cursor.execute("SELECT set_config('distlock.seen', %s, false)", [str(number)])
    answer = elsewhere(lambda: one_value(pooled, "SELECT current_setting('distlock.seen', true)"))
    assert answer
    with connections[pooled].cursor() as cursor:
        cursor.execute("RESET ALL")


@each_kind
def test_one_at_a_time_holds_it(alias: str, name: str) -> None:
    inside: list[int] = []
    tokens: list[int] = []

    def work() -> None:
        for _ in range(5):
            with lock(name, using=alias, wait=20) as lease:
                inside.append(1)
                assert len(inside) == 1
                tokens.append(lease.fencing_token)
                time.sleep(0.002)
                inside.pop()

    threads = [Elsewhere(work).start() for _ in range(SESSIONS)]
    for thread in threads:
        thread.result()
    assert len(tokens) == 5 * SESSIONS
    assert tokens == sorted(set(tokens))


@each_kind
def test_a_lock_is_seen_renewed_refused_and_broken(alias: str, name: str) -> None:
    lease = taken(name, metadata={"why": "test"})
    (info,) = locks[alias].held(name)
    assert (info.fencing_token, info.metadata) == (lease.fencing_token, {"why": "test"})
    lease.renew()
    assert elsewhere(lock(name, using=alias, wait=0).acquire) is None
    locks[alias].force_release(name, fencing_token=lease.fencing_token)
    with pytest.raises(LeaseLostError):
        lease.renew()
    with lock(name, using=alias, wait=5) as theirs:
        assert theirs.fencing_token > lease.fencing_token


@each_kind
def test_it_ends_with_its_ttl(alias: str, name: str) -> None:
    taken(name, ttl=1.0, renew=False)
    began = time.monotonic()
    elsewhere(lambda: taken(name, wait=10).release())
    assert time.monotonic() - began < 1.0 + 5.0


@each_kind
def test_nothing_of_ours_is_left_to_the_next_client(
    alias: str, pooled: str, name: str, kind: str
) -> None:
    """No setting, no prepared statement, no advisory lock."""
    waiter = Elsewhere(lambda: taken(name, wait=20).release())
    with lock(name, using=alias):
        waiter.start()
        time.sleep(0.1)
    waiter.result()
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    wanted = {"synchronous_commit": "on", **dict.fromkeys(limits, "0")}
    assert soon(lambda: one_value("postgresql", LEFT) == 0)

    def left() -> tuple[dict[str, str], int]:
        with connections[pooled].cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(
                "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(wanted)]
            )
            settings = dict(cursor.fetchall())
            cursor.execute("SELECT count(*) FROM pg_prepared_statements")
            (prepared,) = cursor.fetchone()
            time.sleep(0.05)  # keeps the session, so that the others get another one
            cursor.execute("COMMIT")
        return settings, prepared

    clients = [Elsewhere(left).start() for _ in range(SESSIONS)]
    assert [client.result() for client in clients] == [(wanted, 0)] * SESSIONS


@pytest.mark.parametrize("kind", ["table"])
def test_the_table_backend_has_no_wait_queue(alias: str, name: str) -> None:
    """Who waits looks again and again, and is served."""
    lease = taken(name)
    backend = locks[alias]
    with tap(backend, "queue") as queued, tap(backend, "try_acquire") as looks:
        waiter = Elsewhere(lambda: taken(name, wait=20).release()).start()
        assert soon(lambda: looks.answered >= 3)
        lease.release()
        waiter.result()
    assert queued.begun == 0
    assert backend.notifies is False


@pytest.mark.parametrize("kind", ["table", "version"])
def test_a_pooler_that_django_was_not_told_of_is_found(
    store: str, pooler: PgBouncer, kind: str, name: str
) -> None:
    """Session locks would be left behind in its sessions, in the way of all other clients."""
    settings = pooler.settings(connections.settings[store]["NAME"])
    del settings["DISABLE_SERVER_SIDE_CURSORS"]
    with (
        database_alias("untold", settings),
        lock_alias("untold", BACKEND=KINDS[kind], LOCATION="untold") as alias,
    ):

        def wait() -> None:
            with lock(name, using=alias, wait=20):
                pass

        with lock(name, using=alias):
            waiter = Elsewhere(wait).start()
            time.sleep(0.1)
        waiter.result()
        assert locks[alias].notifies is False
        assert one_value("postgresql", LEFT) == 0


@pytest.mark.parametrize("kind", ["row"])
def test_row_locks_that_use_up_the_pooler_are_explained(alias: str, name: str) -> None:
    leases = [taken(f"{name}:{number}") for number in range(SESSIONS)]
    with pytest.raises(LockBackendError, match=r"no answer.*pooler"):
        lock(f"{name}:more", using=alias, wait=0).acquire()
    for lease in leases:
        lease.release()
    taken(f"{name}:more", wait=5).release()


@pytest.mark.parametrize("kind", ["table", "row"])
@pytest.mark.parametrize(
    ("option", "remedies"),
    [
        ("query_wait_timeout = 1", {"table": "size of its pool", "row": "goes past the pooler"}),
        ("max_client_conn = 1", dict.fromkeys(KINDS, "max_client_conn")),
    ],
)
def test_what_a_pooler_has_too_few_of_is_named(
    store: str, kind: str, option: str, remedies: dict[str, str], name: str
) -> None:
    with PgBouncer(cast("PostgreSQL", STARTED[store]), sessions=1, options=[option]) as pooler:
        settings = pooler.settings(connections.settings[store]["NAME"])
        with (
            database_alias("pooled", settings) as theirs,
            lock_alias("pooled", BACKEND=KINDS[kind], LOCATION="pooled"),
        ):
            with theirs.cursor() as cursor:
                cursor.execute("BEGIN")
            with pytest.raises(LockBackendError, match=remedies[kind]):
                elsewhere(lock(name, using="pooled", wait=0).acquire)
            theirs.close()
            assert soon(worker_of(locks["pooled"]).is_idle)  # it releases what may be granted


@pytest.mark.parametrize("kind", ["row"])
def test_row_locks_are_warned_of(alias: str) -> None:
    """Each keeps one of the pooler's sessions for as long as it is held or waited for."""
    (found,) = locks[alias].check()
    assert found.id == "distlock.W005"


def test_advisory_locks_are_refused(pooled: str, name: str) -> None:
    """They would be left behind in a session that is given to another client."""
    backend = "django_distlock.backends.advisory.AdvisoryBackend"
    with lock_alias("pooled", BACKEND=backend, LOCATION=pooled) as alias:
        for _ in range(2):
            with pytest.raises(InvalidLockBackendError, match="pooler"):
                lock(name, using=alias).acquire()
        (found,) = locks[alias].check()
        assert found.id == "distlock.W005"
    assert one_value("postgresql", LEFT) == 0


def test_a_lock_of_the_transaction_passes_it(pooled: str, store: str, name: str) -> None:
    """Exclude clients of the pooler and of the server itself, and leave nothing."""
    advisory = "django_distlock.backends.advisory.AdvisoryBackend"
    with (
        lock_alias("pooled", BACKEND=advisory, LOCATION=pooled),
        lock_alias("direct", BACKEND=advisory, LOCATION=store),
    ):
        inside: list[int] = []
        tokens: list[int] = []

        def work(using: str) -> None:
            for _ in range(5):
                with lock(name, using=using, wait=20).atomic(xact=True) as lease:
                    inside.append(1)
                    assert len(inside) == 1
                    tokens.append(lease.fencing_token)
                    time.sleep(0.002)
                    inside.pop()

        ways = ("pooled", "direct") * 2
        threads = [Elsewhere(partial(work, using)).start() for using in ways]
        for thread in threads:
            thread.result()
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 5 * len(ways)
        assert not elsewhere(lock(name, using="direct").locked)
