"""Advisory locks: sessions that the server ends, servers that die or hang, holders that stop."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_distlock import LeaseLostError, LockBackendError, lock, locks
from django_distlock.backends.advisory import ANSWERS
from django_distlock.backends.table.errors import Overdue
from django_distlock.core.values import Claim, Grant
from django_distlock.models import AdvisoryHolder
from tests.backends.outages import COMMAND, Place
from tests.backends.rowlocks import on_servers, taken, waits
from tests.backends.test_advisory import advisory, advisory_alias
from tests.backends.tools import SERVERS, Elsewhere, database_alias, soon
from tests.faults.test_stopped import goes_on, holder
from tests.servers.postgresql import PostgreSQL


@pytest.fixture
def held(own: Place) -> Iterator[str]:
    """The advisory backend on a server that may be disturbed."""
    with advisory_alias("held", "own", OPTIONS={"COMMAND_TIMEOUT": COMMAND}):
        yield "held"


@on_servers
def test_a_holder_that_stands_still_loses_it_within_its_ttl(
    store: str, name: str, tmp_path: Path
) -> None:
    """The holder is another process: only the server can end its session."""
    alias = f"advisory-{store}"
    with holder(alias, name, 0.5, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        limit = advisory(alias).max_ttl(0.5)
        with lock(name, using=alias, wait=20) as theirs:
            assert time.monotonic() - stopped < limit + 8.0
            lost = "LeaseLostError"
            found = goes_on(process)
            assert {found[verb] for verb in ("before", "check", "renew", "release")} == {lost}
            theirs.renew()


@on_servers
def test_a_killed_holder_frees_the_lock_at_once(store: str, name: str, tmp_path: Path) -> None:
    alias = f"advisory-{store}"
    with holder(alias, name, 30.0, tmp_path) as process:
        waiter = Elsewhere(lambda: taken(name, alias, wait=25)).start()
        assert soon(lambda: waits(name, alias))
        killed = time.monotonic()
        process.kill()
        waiter.result().release()
        assert time.monotonic() - killed < 5.0


@on_servers
def test_a_process_that_does_not_answer_a_forced_release_is_cut_off(
    store: str, name: str, tmp_path: Path
) -> None:
    alias = f"advisory-{store}"
    with holder(alias, name, 60.0, tmp_path) as process:
        assert soon(lambda: lock(name, using=alias).locked())
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        locks[alias].force_release(name)
        assert time.monotonic() - began < ANSWERS + 5.0
        with lock(name, using=alias, wait=0):
            assert goes_on(process)["release"] == "LeaseLostError"


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_a_lock_is_shown_until_the_server_has_ended_its_session(store: str, name: str) -> None:
    """The server closes a connection, or is told of its end, before it frees the locks."""
    alias = f"advisory-{store}"
    backend, lease = advisory(alias), taken(name, alias, renew=False)
    assert soon(lambda: AdvisoryHolder.objects.using(store).filter(name=name).exists())
    session = backend._session_of(lease._hold.claim)
    assert session is not None
    raw, number = session.connection.connection, session.number
    os.kill(number, signal.SIGSTOP)
    try:
        with socket.socket(fileno=os.dup(raw.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        assert not backend.renew(lease._hold.claim)
        backend._holders.write(backend.dialect)
        with advisory_alias("other", store):
            info = locks["other"].inspect(name)
            assert info is not None
            assert info.fencing_token == lease.fencing_token
            forced = Elsewhere(lambda: locks["other"].force_release(name)).start()
            time.sleep(0.3)
            assert not forced.done()
            os.kill(number, signal.SIGCONT)
            forced.result()
            taken(name, "other", wait=0).release()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGCONT)


@on_servers
@pytest.mark.parametrize("call", ["renew", "release"])
def test_a_lock_whose_freeing_is_answered_late_is_lost(store: str, name: str, call: str) -> None:
    """It had run out or was forced: until the answer is read, its session has it noted."""
    alias = f"advisory-{store}"
    lease = taken(name, alias, renew=False)
    backend, owner = advisory(alias), lease._hold.claim.owner
    session = backend._session_of(lease._hold.claim)
    assert session is not None
    with session.mutex, contextlib.suppress(Overdue):
        backend._free(session, owner, 0.0, lost=True)
    with pytest.raises(LeaseLostError):
        getattr(lease, call)()
    taken(name, alias, wait=5).release()


def test_a_session_ended_by_the_server_is_a_lost_lease(own: Place, held: str, name: str) -> None:
    for call in ("renew", "release"):
        lease = taken(name, held, renew=False)
        own.end_sessions()
        assert not lock(name, using=held).locked()
        with pytest.raises(LeaseLostError):
            getattr(lease, call)()


def test_a_check_sees_that_the_session_has_ended(own: Place, held: str, name: str) -> None:
    """The server has freed the lock by then: to learn of it by the next renewal is too late."""
    lease = taken(name, held, renew=False)
    lease.check()
    own.end_sessions()
    assert soon(lambda: lease.lost)
    with pytest.raises(LeaseLostError):
        lease.check()


def test_idle_sessions_ended_by_the_server_are_opened_again(
    own: Place, held: str, name: str
) -> None:
    for _ in range(2):
        with lock(name, using=held):
            waiter = Elsewhere(lambda: taken(name, held, wait=20).release()).start()
            assert soon(lambda: waits(name, held))
        waiter.result()
        own.end_sessions()


def test_a_waiter_whose_session_is_ended_queues_once_more(own: Place, held: str, name: str) -> None:
    with lock(name, using="own"):  # the table: its session is another one
        pass
    lease = taken(name, held)
    waiter = Elsewhere(lambda: taken(name, held, wait=20)).start()
    assert soon(lambda: waits(name, held))
    (session,) = (each for each in advisory(held)._sessions.values() if each.owner)
    dialect = advisory(held).dialect
    advisory(held)._look(lambda looker: dialect.end(looker, session.number))
    time.sleep(0.2)
    assert not waiter.done()
    lease.release()
    waiter.result().release()


def test_a_server_killed_while_we_hold_and_wait(own: Place, held: str, name: str) -> None:
    lease = taken(name, held, renew=False)
    waiter = Elsewhere(lock(name, using=held, wait=20).acquire).start()
    assert soon(lambda: waits(name, held))
    own.server.kill()
    with pytest.raises(LockBackendError):
        waiter.result()
    own.server.start()
    with lock(name, using=held, wait=5) as theirs:
        assert theirs.fencing_token > lease.fencing_token
        with pytest.raises(LeaseLostError):
            lease.renew()


def test_tokens_rise_through_a_crash_of_the_server(own: Place, held: str, name: str) -> None:
    """Many are drawn in the moment before, of which the server has written nothing."""
    for _ in range(2):
        tokens = []
        for _ in range(200):
            with lock(name, using=held) as lease:
                tokens.append(lease.fencing_token)
        own.server.kill()
        own.server.start()
        with lock(name, using=held, wait=5) as lease:
            tokens.append(lease.fencing_token)
        assert tokens == sorted(set(tokens))


def test_a_server_that_hangs_costs_no_lease(own: Place, held: str, name: str) -> None:
    """Who asks in vain gives up; the session stays, and what it was granted too late is freed."""
    lease = taken(f"{name}held", held)
    own.server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(LockBackendError, match=r"no answer|in use"):
            lock(name, using=held, wait=0).acquire()
        assert time.monotonic() - began < 3 * COMMAND + 5.0
    finally:
        own.server.resume()
    with lock(name, using=held, wait=5):
        lease.check()
        lease.renew()
        lease.release()


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_call_that_a_hanging_server_did_not_answer_can_be_repeated(
    own: Place, held: str, name: str, verb: str
) -> None:
    lease = taken(name, held, renew=False)
    own.server.pause()
    try:
        with pytest.raises(LockBackendError, match=r"no answer|in use"):
            getattr(lease, verb)()
    finally:
        own.server.resume()
    getattr(lease, verb)()
    if verb == "renew":
        lease.release()
    taken(name, held, wait=5).release()


def test_an_owner_whose_session_has_ended_is_granted_the_lock_anew(
    own: Place, held: str, name: str
) -> None:
    backend = advisory(held)
    claim = Claim(name, backend.key(name), "mine", 20.0)
    first = backend.try_acquire(claim, 1.0)
    assert backend.try_acquire(claim, 1.0) == first
    own.end_sessions()
    again = backend.try_acquire(claim, 1.0)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert again.fencing_token > first.fencing_token
    assert backend.release(claim)


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_a_full_lock_table_is_told_with_its_setting(store: str, name: str) -> None:
    few = ["-c", "max_locks_per_transaction=10", "-c", "max_connections=10"]
    few += ["-c", "superuser_reserved_connections=0", "-c", "max_wal_senders=0"]
    few += ["-c", "autovacuum=off", "-c", "max_worker_processes=0"]
    with PostgreSQL(options=few) as server, database_alias("few", server.create_database("few")):
        from django.core.management import call_command

        call_command("migrate", database="few", verbosity=0)
        with advisory_alias("few", "few"):
            held = []

            def take_all() -> None:
                for number in range(20_000):
                    held.append(taken(f"{name}{number}", "few"))

            with pytest.raises(LockBackendError, match="max_locks_per_transaction"):
                take_all()
            del locks["few"]
