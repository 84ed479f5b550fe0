"""Row locks: sessions that end, hang, are forced or forked, and what a process may have of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from django.db import connections

from django_distlock import (
    InvalidLockBackendError,
    Lease,
    LeaseLostError,
    LockBackendError,
    UnsupportedOperationError,
    lock,
    locks,
)
from django_distlock.backends.row import RowBackend
from django_distlock.backends.row.checks import check
from django_distlock.backends.row.session import Session
from django_distlock.models import RowLock, RowSession, RowToken
from tests.backends.outages import COMMAND, Place
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    lock_alias,
    one_value,
    sessions,
    soon,
)

ROW = "django_distlock.backends.row.RowBackend"
ROOT = Path(__file__).resolve().parents[2]
CLOCK = {
    "postgresql": "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "mariadb": "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
}

on_servers = pytest.mark.parametrize("store", SERVERS)


@contextmanager
def row_alias(alias: str, database: str, **conf: Any) -> Iterator[str]:
    """Add an alias of the row backend for a while, with sessions of its own."""
    with lock_alias(alias, BACKEND=ROW, LOCATION=database, **conf):
        yield alias


def row(alias: str) -> RowBackend:
    """Return the backend of an alias."""
    return cast("RowBackend", locks[alias])


def taken(name: str, using: str, **options: Any) -> Lease:
    """Take a lock."""
    lease = lock(name, using=using, **options).acquire()
    assert lease
    return lease


def waits(name: str, using: str) -> bool:
    """Tell whether somebody of this process stands in the server's queue for a lock."""
    backend = row(using)
    sessions = list(backend._sessions.values())
    return any(each.sent and each.key == backend.key(name) for each in sessions)


def refused(name: str, using: str) -> bool:
    """Tell whether somebody else is refused."""
    return Elsewhere(lock(name, using=using, wait=0).acquire).start().result() is None


# -- where it works ------------------------------------------------------------------------------


def test_sqlite_is_refused_at_check_and_at_first_use(name: str) -> None:
    with row_alias("rows", "default"):
        (found,) = locks["rows"].check()
        assert (found.id, "no row locks" in found.msg) == ("distlock.E006", True)
        assert "TableBackend" in str(found.hint)
        for use in (lock(name, using="rows").acquire, lock(name, using="rows").locked):
            with pytest.raises(InvalidLockBackendError, match=r"no row locks.*TableBackend"):
                use()


@on_servers
def test_a_pooler_in_transaction_mode_is_warned_of(store: str) -> None:
    assert check("rows", store) == []
    settings = dict(connections.settings[store]) | {"DISABLE_SERVER_SIDE_CURSORS": True}
    with database_alias("pooled", settings):
        (found,) = check("rows", "pooled")
    assert (found.id, "pooler" in found.msg) == ("distlock.W005", True)


@pytest.mark.parametrize("options", [{"CONNECTIONS": 0}, {"IDLE": -1}, {"IDLE": "4"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    wrong = pytest.raises(InvalidLockBackendError, match=next(iter(options)))
    with row_alias("rows", "default", OPTIONS=options), wrong:
        _ = locks["rows"]


# -- how many sessions ---------------------------------------------------------------------------


@on_servers
def test_a_process_has_no_more_connections_than_it_may(store: str, name: str) -> None:
    with row_alias("rows", store, OPTIONS={"CONNECTIONS": 1}):
        lease = taken(f"{name}:1", "rows")
        for wait in (0, 0.2):
            with pytest.raises(LockBackendError, match=r"all 1 sessions.*CONNECTIONS"):
                lock(f"{name}:2", using="rows", wait=wait).acquire()
        waiter = Elsewhere(lambda: taken(f"{name}:2", "rows", wait=20).release()).start()
        time.sleep(0.1)
        lease.release()
        waiter.result()


def test_idle_sessions_are_bounded_and_used_again(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    if store not in SERVERS:
        return
    with database_alias("quiet", quiet), row_alias("rows", "quiet", OPTIONS={"IDLE": 2}):
        leases = [taken(f"{name}:{number}", "rows") for number in range(4)]
        assert len(sessions(store)) == 4
        for lease in leases:
            lease.release()
        assert soon(lambda: len(sessions(store)) == 2)
        kept = sessions(store)
        taken(name, "rows").release()
        assert sessions(store) == kept
        row("rows").close_idle()
        assert soon(lambda: not sessions(store))


@on_servers
def test_a_lease_that_nobody_released_costs_no_session_for_long(store: str, name: str) -> None:
    with row_alias("rows", store, OPTIONS={"CONNECTIONS": 1}):
        taken(f"{name}:1", "rows", ttl=0.2, renew=False)
        with lock(f"{name}:2", using="rows", wait=20):
            pass


@on_servers
def test_waiting_tasks_cost_no_thread_and_do_not_block_the_loop(store: str, name: str) -> None:
    async def main() -> tuple[int, float]:
        lease = await lock(name, using="rows").aacquire()
        assert lease
        waiters = [
            asyncio.create_task(lock(name, using="rows", wait=20).aacquire()) for _ in range(12)
        ]
        while len(row("rows")._sessions) < 13:
            await asyncio.sleep(0.01)
        threads = sum(t.name.startswith("distlock-rows") for t in threading.enumerate())
        worst = 0.0
        for _ in range(20):
            began = time.monotonic()
            await asyncio.sleep(0.005)
            worst = max(worst, time.monotonic() - began)
        await lease.arelease()
        for waiting in asyncio.as_completed(waiters):
            got = await waiting
            assert got
            await got.arelease()
        return threads, worst

    with row_alias("rows", store):
        threads, worst = asyncio.run(main())
    assert threads <= 5  # four that ask, and one that renews
    assert worst < 1.0


@on_servers
def test_a_driver_that_cannot_send_and_go_on_is_polled(store: str, name: str) -> None:
    """As PyMySQL and psycopg2."""
    alias = f"row-{store}"
    with mock.patch.object(Session, "can_send", return_value=False):
        lease = taken(name, alias)
        assert Elsewhere(lock(name, using=alias, wait=0.1).acquire).start().result() is None
        waiter = Elsewhere(lambda: taken(name, alias, wait=20).release()).start()
        time.sleep(0.15)
        assert not waiter.done()
        assert not waits(name, alias)
        lease.release()
        waiter.result()


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_the_programs_statement_timeout_ends_no_wait(store: str, name: str) -> None:
    settings = dict(connections.settings[store])
    options = settings["OPTIONS"] | {"options": "-c statement_timeout=200ms"}
    with database_alias("hasty", settings | {"OPTIONS": options}), row_alias("rows", "hasty"):
        lease = taken(name, "rows")
        waiter = Elsewhere(lambda: taken(name, "rows", wait=20).release()).start()
        time.sleep(0.4)
        assert not waiter.done()
        lease.release()
        waiter.result()


# -- tokens --------------------------------------------------------------------------------------


@on_servers
def test_a_waiters_token_is_drawn_after_its_wait(store: str, name: str) -> None:
    """In the statement that waits it would be as old as the beginning of the wait."""
    alias = f"row-{store}"
    lease = taken(name, alias)
    waiter = Elsewhere(lambda: taken(name, alias, wait=20)).start()
    assert soon(lambda: waits(name, alias))
    time.sleep(0.2)
    late = one_value(store, CLOCK[store])
    lease.release()
    theirs = waiter.result()
    assert theirs.fencing_token > late
    theirs.release()


@on_servers
def test_tokens_rise_when_the_holders_are_killed(store: str, name: str) -> None:
    """What they wrote is rolled back."""
    alias = f"row-{store}"
    tokens = []
    with row_alias("killer", store):
        for _ in range(3):
            lease = taken(name, alias, renew=False)
            tokens.append(lease.fencing_token)
            assert locks["killer"].force_release(name).fencing_token == tokens[-1]
            with pytest.raises(LeaseLostError):
                lease.renew()
    assert tokens == sorted(set(tokens))


@on_servers
def test_a_token_ahead_of_the_clock_is_topped(store: str, name: str) -> None:
    """As after the clock was set back, or a hand in the table."""
    alias = f"row-{store}"
    taken(name, alias).release()
    ahead = time.time_ns() // 1000 + 10**9
    model = {"postgresql": RowToken, "mariadb": RowLock}[store]
    model._default_manager.using(store).filter(digest=row(alias).key(name)).update(token=ahead)
    with lock(name, using=alias) as lease:
        assert lease.fencing_token == ahead + 1


# -- rows in the hands of others -----------------------------------------------------------------


@on_servers
def test_a_row_deleted_by_hand_is_made_again(store: str, name: str) -> None:
    alias = f"row-{store}"
    with lock(name, using=alias) as lease:
        token = lease.fencing_token
    for wait in (0, 5):
        RowLock.objects.using(store).filter(digest=row(alias).key(name)).delete()
        with lock(name, using=alias, wait=wait) as lease:
            assert lease.fencing_token > token
            assert refused(name, alias)


@on_servers
def test_a_row_deleted_under_a_waiter_is_made_again(store: str, name: str) -> None:
    """The one who deletes it has it locked; then there is nothing to be had."""
    alias = f"row-{store}"
    taken(name, alias).release()
    raw = connections[store].copy()
    raw.inc_thread_sharing()
    with raw.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM distlock_row WHERE digest = %s", [row(alias).key(name)])
        waiter = Elsewhere(lambda: taken(name, alias, wait=20)).start()
        assert soon(lambda: waits(name, alias))
        time.sleep(0.1)
        assert not waiter.done()
        late = one_value(store, CLOCK[store])
        cursor.execute("COMMIT")
    raw.close()
    lease = waiter.result()
    assert lease.fencing_token > late
    assert refused(name, alias)
    lease.release()


@on_servers
def test_a_row_locked_by_hand_is_a_held_lock(store: str, name: str) -> None:
    alias = f"row-{store}"
    taken(name, alias).release()
    raw = connections[store].copy()
    with raw.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "SELECT 1 FROM distlock_row WHERE digest = %s FOR UPDATE", [row(alias).key(name)]
        )
        assert lock(name, using=alias, wait=0).acquire() is None
        assert lock(name, using=alias, wait=0.2).acquire() is None
        cursor.execute("COMMIT")
    raw.close()
    taken(name, alias).release()


# -- forcing, and other processes ----------------------------------------------------------------


@on_servers
def test_a_lock_is_broken_by_ending_its_session(store: str, name: str) -> None:
    """From another process: here another alias, with no knowledge of the first one's sessions."""
    alias = f"row-{store}"
    with row_alias("other", store):
        lease = taken(name, alias, metadata={"why": "test"})
        (info,) = locks["other"].held(name)
        assert info.metadata == {"why": "test"}
        assert info.holder.pid == os.getpid()
        locks["other"].force_release(name, fencing_token=lease.fencing_token)
        with lock(name, using="other", wait=0) as theirs:
            assert theirs.fencing_token > lease.fencing_token
            with pytest.raises(LeaseLostError):
                lease.renew()


@on_servers
def test_a_role_that_may_not_end_a_session_is_told_what_to_do(store: str, name: str) -> None:
    alias = f"row-{store}"
    role, word = "looker", "secret"
    settings = dict(connections.settings[store])
    with connections[store].cursor() as cursor:
        if store == "postgresql":
            cursor.execute(f"DROP ROLE IF EXISTS {role}")
            cursor.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{word}'")
            cursor.execute(f"GRANT pg_read_all_data, pg_write_all_data TO {role}")
        else:
            cursor.execute(f"CREATE OR REPLACE USER {role}@'%%' IDENTIFIED BY '{word}'", [])
            cursor.execute(f"GRANT ALL ON {settings['NAME']}.* TO {role}@'%%'", [])
    lease = taken(name, alias)
    weak = database_alias("looker", settings | {"USER": role, "PASSWORD": word})
    wanted = {"postgresql": "GRANT pg_signal_backend", "mariadb": "CONNECTION ADMIN"}[store]
    with weak, row_alias("other", "looker"), pytest.raises(LockBackendError, match=wanted):
        locks["other"].force_release(name)
    lease.renew()
    lease.release()


@on_servers
def test_a_lease_is_not_handed_to_another_process(store: str, name: str) -> None:
    alias = f"row-{store}"
    with row_alias("other", store):
        handle = taken(name, alias).detach()
        with pytest.raises(UnsupportedOperationError, match="another one"):
            Lease.attach(handle.replace(alias, "other"))
        Lease.attach(handle).release()


@on_servers
def test_a_forked_child_spares_the_sessions_of_its_parent(store: str, name: str) -> None:
    words = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *words, "-m", "tests.backends.forked_row", f"row-{store}", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@on_servers
def test_cleaning_leaves_nothing_of_sessions_that_have_ended(store: str, name: str) -> None:
    if store != "postgresql":
        assert not RowSession.objects.using(store).exists()
        return
    alias = f"row-{store}"
    taken(name, alias).release()
    row(alias).close_idle()
    assert soon(lambda: _cleaned(store, alias))


def _cleaned(store: str, alias: str) -> bool:
    locks[alias].clean(older_than=3600)
    return not RowSession.objects.using(store).exists()


# -- outages -------------------------------------------------------------------------------------


@pytest.fixture
def rows(own: Place) -> Iterator[str]:
    """The row backend on a server that may be disturbed."""
    with row_alias("rows", "own", OPTIONS={"COMMAND_TIMEOUT": COMMAND}):
        yield "rows"


def test_the_servers_idle_limit_is_the_ttl(rows: str, name: str) -> None:
    lease = taken(name, rows, ttl=0.3, renew=False)
    backend = row(rows)
    other = Elsewhere(lambda: taken(name, rows, wait=backend.max_ttl(0.3) + 1)).start()
    theirs = other.result()
    assert theirs.fencing_token > lease.fencing_token
    for call in (lease.renew, lease.release):
        with pytest.raises(LeaseLostError):
            call()
    theirs.release()


def test_a_session_ended_by_the_server_is_a_lost_lease(own: Place, rows: str, name: str) -> None:
    for call in ("renew", "release"):
        lease = taken(name, rows, renew=False)
        own.end_sessions()
        assert not lock(name, using=rows).locked()
        with pytest.raises(LeaseLostError):
            getattr(lease, call)()


def test_idle_sessions_ended_by_the_server_are_opened_again(
    own: Place, rows: str, name: str
) -> None:
    for _ in range(2):
        with lock(name, using=rows):
            pass
        own.end_sessions()


def test_the_watchdog_tells_of_an_ended_session(own: Place, rows: str, name: str) -> None:
    lost = threading.Event()
    lease = taken(name, rows, ttl=1.5)
    lease.on_lost(lambda _: lost.set())
    own.end_sessions()
    assert lost.wait(1.5)
    assert lease.lost


def test_a_server_killed_while_we_hold_and_wait(own: Place, rows: str, name: str) -> None:
    lease = taken(name, rows, renew=False)
    waiter = Elsewhere(lock(name, using=rows, wait=20).acquire).start()
    assert soon(lambda: waits(name, rows))
    time.sleep(0.1)
    own.server.kill()
    with pytest.raises(LockBackendError):
        waiter.result()
    own.server.start()
    with lock(name, using=rows, wait=5) as theirs:
        assert theirs.fencing_token > lease.fencing_token
        with pytest.raises(LeaseLostError):
            lease.renew()


def test_a_server_that_hangs_is_told_in_time(own: Place, rows: str, name: str) -> None:
    taken(name, rows).release()
    own.server.pause()
    began = time.monotonic()
    with pytest.raises(LockBackendError, match="no answer"):
        lock(name, using=rows, wait=0).acquire()
    assert time.monotonic() - began < COMMAND + 0.6
    own.server.resume()
    taken(name, rows, wait=5).release()
