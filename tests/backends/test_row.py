"""Row locks: where they work, and how many sessions a process has for them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from unittest import mock

import pytest
from django.db import connections

from django_distlock import (
    InvalidLockBackendError,
    LockBackendError,
    lock,
    locks,
)
from django_distlock.backends import row as row_module
from django_distlock.backends.row.checks import check
from django_distlock.backends.row.session import LockSession
from tests.backends.rowlocks import (
    on_servers,
    row,
    row_alias,
    taken,
    waits,
)
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    sessions,
    soon,
)


def test_sqlite_is_refused_at_check_and_at_first_use(name: str) -> None:
    with row_alias("rows", "default"):
        (found,) = locks["rows"].check()
        assert (found.id, "no row locks" in found.msg) == ("distlock.E006", True)
        assert "TableBackend" in str(found.hint)
        assert "distlock.W009" in [each.id for each in locks["rows"].check_deploy()]
        for use in (lock(name, using="rows").acquire, lock(name, using="rows").locked):
            with pytest.raises(InvalidLockBackendError, match=r"no row locks.*TableBackend"):
                use()


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_an_unknown_database_is_refused(store: str, name: str) -> None:
    """An engine of which this backend knows no statements."""
    settings = dict(connections.settings[store]) | {"ENGINE": "tests.backends.engines.unheard"}
    with database_alias("foreign", settings), row_alias("rows", "foreign"):
        (found,) = locks["rows"].check()
        assert (found.id, "has no statements" in found.msg) == ("distlock.E006", True)
        with pytest.raises(InvalidLockBackendError, match=r"has no statements.*TableBackend"):
            lock(name, using="rows").acquire()


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


@on_servers
def test_idle_sessions_are_bounded_and_used_again(
    store: str, quiet: dict[str, Any], name: str
) -> None:
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
        taken(f"{name}:1", "rows", ttl=1.0, renew=False)
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
    assert worst < 6.0  # not while they wait, which is for 20 s


@on_servers
def test_a_refusal_that_took_longer_than_the_ttl_is_one(store: str, name: str) -> None:
    """The server has ended the session by then, and rolled back; the lock is held still."""
    roll_back = row_module._roll_back

    def late(session: LockSession, limit: float) -> None:
        time.sleep(row(alias).max_ttl(0.05) + 1.0)
        roll_back(session, limit)

    alias = f"row-{store}"
    lease = taken(name, alias)
    brief = lock(name, using=alias, ttl=0.05, wait=0)
    with mock.patch.object(row_module, "_roll_back", late):
        assert Elsewhere(brief.acquire).start().result() is None
    lease.check()
    lease.release()


@on_servers
def test_a_driver_that_cannot_send_and_go_on_is_polled(store: str, name: str) -> None:
    """As PyMySQL and psycopg2."""
    alias = f"row-{store}"
    with mock.patch.object(LockSession, "can_send", return_value=False):
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
