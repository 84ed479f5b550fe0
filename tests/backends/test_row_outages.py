"""Row locks: sessions that the server ends, servers that die or hang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    lock,
    locks,
)
from django_distlock.backends.row import RowBackend, sessions
from django_distlock.core.values import Claim, CleanPolicy, Grant
from tests.backends.outages import COMMAND, Place
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
    elsewhere,
    soon,
)
from tests.faults.test_stopped import goes_on, holder
from tests.proxy import Proxy


@pytest.fixture
def rows(own: Place) -> Iterator[str]:
    """The row backend on a server that may be disturbed."""
    with row_alias("rows", "own", OPTIONS={"COMMAND_TIMEOUT": COMMAND}):
        yield "rows"


@on_servers
def test_the_servers_idle_limit_is_the_ttl(store: str, name: str, tmp_path: Path) -> None:
    """The holder is another process, and stands still: only the server can end its session."""
    alias = f"row-{store}"
    with holder(alias, name, 0.5, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        limit = row(alias).max_ttl(0.5)
        with lock(name, using=alias, wait=20) as theirs:
            assert time.monotonic() - stopped < limit + 8.0
            lost = "LeaseLostError"
            found = goes_on(process)
            assert {found[verb] for verb in ("before", "check", "renew", "release")} == {lost}
            theirs.renew()


@on_servers
def test_a_holder_that_did_not_renew_is_told_so(store: str, name: str) -> None:
    alias = f"row-{store}"
    lease = taken(name, alias, ttl=1.0, renew=False)
    theirs = elsewhere(lambda: taken(name, alias, wait=20))
    assert theirs.fencing_token > lease.fencing_token
    for call in (lease.renew, lease.release):
        with pytest.raises(LeaseLostError):
            call()
    theirs.release()


@pytest.mark.parametrize("server", [s for s in SERVERS if s == "mariadb"], indirect=True)
def test_the_servers_other_idle_limits_end_no_lease(own: Place, rows: str, name: str) -> None:
    """MariaDB has three, and the two for writing and for reading win over the first."""
    siblings = [f"idle_{kind}_transaction_timeout" for kind in ("write", "readonly")]
    own.server.execute("; ".join(f"SET GLOBAL {each} = 1" for each in siblings))
    try:
        lease = taken(name, rows, ttl=5.0, renew=False)
        # A program's own session has them, as this one would else.
        with connections["own"].cursor() as cursor:
            cursor.execute(f"SELECT @@{siblings[0]}, @@{siblings[1]}")
            assert cursor.fetchone() == (1, 1)
        time.sleep(2.2)
        lease.renew()
        time.sleep(2.2)
        lease.check()
        lease.release()
    finally:
        own.server.execute("; ".join(f"SET GLOBAL {each} = 0" for each in siblings))


def test_a_session_ended_by_the_server_is_a_lost_lease(own: Place, rows: str, name: str) -> None:
    for call in ("renew", "release"):
        lease = taken(name, rows, renew=False)
        own.end_sessions()
        assert not lock(name, using=rows).locked()
        with pytest.raises(LeaseLostError):
            getattr(lease, call)()


def test_a_check_sees_that_the_session_has_ended(own: Place, rows: str, name: str) -> None:
    """The server has freed the lock by then: to learn of it by the next renewal is too late."""
    lease = taken(name, rows, renew=False)
    lease.check()
    own.end_sessions()
    assert soon(lambda: lease.lost)
    with pytest.raises(LeaseLostError):
        lease.check()


def test_idle_sessions_ended_by_the_server_are_opened_again(
    own: Place, rows: str, name: str
) -> None:
    for _ in range(2):
        with lock(name, using=rows):
            pass
        own.end_sessions()


def test_the_watchdog_tells_of_an_ended_session(own: Place, rows: str, name: str) -> None:
    lost = threading.Event()
    lease = taken(name, rows, ttl=6)
    lease.on_lost(lambda _: lost.set())
    own.end_sessions()
    assert lost.wait(5), "a third of the ttl, and time to spare"
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
    assert time.monotonic() - began < COMMAND + 5.0
    own.server.resume()
    taken(name, rows, wait=5).release()


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_lease_on_a_server_that_hangs_is_given_up(
    own: Place, rows: str, name: str, verb: str
) -> None:
    """Whether it was done is not known; the session is closed, which frees the lock in any case."""
    lease = taken(name, rows, renew=False)
    own.server.pause()
    with pytest.raises(LockBackendError, match="no answer"):
        getattr(lease, verb)()
    own.server.resume()
    taken(name, rows, wait=5).release()
    if verb == "renew":
        with pytest.raises(LeaseLostError):
            lease.renew()


def test_an_owner_whose_session_has_ended_is_granted_the_lock_anew(
    own: Place, rows: str, name: str
) -> None:
    backend = row(rows)
    claim = Claim(name, backend.key(name), "mine", 20.0)
    first = backend.try_acquire(claim, 1.0)
    assert backend.try_acquire(claim, 1.0) == first
    own.end_sessions()
    again = backend.try_acquire(claim, 1.0)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert again.fencing_token > first.fencing_token
    assert backend.release(claim)


@pytest.mark.parametrize("store", SERVERS)
def test_an_idle_session_is_closed_in_the_end(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE", 0.05)
    with row_alias("brief", store):
        taken(name, "brief").release()
        backend = locks["brief"]
        assert isinstance(backend, RowBackend)
        assert soon(lambda: not backend._pool._idle._all)
        with lock(name, using="brief"):
            pass


def test_what_is_cleaned_of_a_slow_server_may_take_longer_than_a_statement(
    own: Place, name: str
) -> None:
    """COMMAND_TIMEOUT is for one of its transactions, not for all that there is to remove."""
    with (
        Proxy(own.server.port) as proxy,
        database_alias("slow", own.server.settings("own") | {"PORT": proxy.port}),
        row_alias("rows", "slow", OPTIONS={"COMMAND_TIMEOUT": 2.0}),
    ):
        for number in range(60):
            taken(f"{name}:{number}", "rows").release()
        proxy.delay(0.04)
        cleaned = locks["rows"].clean_batch(CleanPolicy(older_than=0.0), "")
    assert cleaned.removed >= 60
