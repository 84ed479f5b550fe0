"""Advisory locks: the sessions that they share, what others see of them, and their tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
from django.db import connections

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    UnsupportedOperationError,
    lock,
    locks,
)
from django_distlock.backends.advisory import AdvisoryBackend, mysql, postgresql
from django_distlock.backends.advisory.session import AdvisorySession
from django_distlock.backends.advisory.sessions import SHARED
from django_distlock.models import AdvisoryHolder
from tests.backends.rowlocks import on_servers, taken
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    elsewhere,
    lock_alias,
    sessions,
    soon,
    unreachable,
    weak_role,
)
from tests.conftest import SERVERS as STARTED
from tests.servers import ByStore

ADVISORY = "django_distlock.backends.advisory.AdvisoryBackend"
AHEAD = 3_600_000_000  # an hour, in the microseconds of tokens


@contextmanager
def advisory_alias(alias: str, database: str, **conf: Any) -> Iterator[str]:
    """Add an alias of the advisory backend for a while, with sessions of its own."""
    with lock_alias(alias, BACKEND=ADVISORY, LOCATION=database, **conf):
        yield alias


def advisory(alias: str) -> AdvisoryBackend:
    """Return the backend of an alias."""
    return cast("AdvisoryBackend", locks[alias])


@pytest.fixture
def alias(store: str) -> Iterator[str]:
    """The alias "advisory", whose sessions no other test has used."""
    with advisory_alias("advisory", store):
        yield "advisory"


@on_servers
def test_five_thousand_locks_take_one_connection(store: str, alias: str, name: str) -> None:
    before = sessions(store, connections[store].settings_dict["NAME"])
    leases = [taken(f"{name}{number}", alias) for number in range(5000)]
    # And one by which others are told of them.
    after = sessions(store, connections[store].settings_dict["NAME"])
    assert len(after - before) <= 2
    assert len(list(locks[alias].held(name))) == 5000
    if store == "postgresql":
        # Each row is looked up in a set of the locks; a join was a loop of 25 million rounds.
        with connections[store].cursor() as cursor:
            cursor.execute(f"EXPLAIN {postgresql.HELD}")
            assert any("hashed SubPlan" in line for (line,) in cursor.fetchall())
    for lease in leases:
        lease.release()
    assert list(locks[alias].held(name)) == []


@on_servers
def test_leases_of_many_ttls_share_few_sessions(store: str, alias: str, name: str) -> None:
    leases = [taken(f"{name}{ttl}", alias, ttl=ttl, renew=False) for ttl in range(20, 30)]
    assert len(advisory(alias)._shared) == SHARED
    for lease, ttl in zip(leases, range(20, 30), strict=True):
        session = advisory(alias)._session_of(lease._hold.claim)
        assert session is not None
        assert session.idle * advisory(alias).dialect.unit >= ttl
    for lease in leases:
        lease.release()


@on_servers
def test_a_lease_runs_out_beside_a_longer_one(store: str, alias: str, name: str) -> None:
    """The session stays, which this process keeps: it has to free the one itself."""
    longer = taken(f"{name}longer", alias, ttl=20.0)
    taken(name, alias, ttl=20.0).renew(1.0)
    began = time.monotonic()
    with lock(name, using=alias, wait=20):
        assert time.monotonic() - began < 10
    longer.renew()
    longer.release()


@contextmanager
def unwritable(store: str) -> Iterator[None]:
    """Keep all others from writing of the locks that are held; they may read."""
    begin = ByStore(
        {
            "postgresql": "BEGIN; LOCK TABLE distlock_advisory IN SHARE MODE",
            "mariadb": "LOCK TABLES distlock_advisory READ",
        }
    )
    end = ByStore({"postgresql": "COMMIT", "mariadb": "UNLOCK TABLES"})
    with connections[store].cursor() as cursor:
        cursor.execute(begin[store])
        try:
            yield
        finally:
            cursor.execute(end[store])


@on_servers
def test_a_lease_ends_while_what_others_are_to_see_cannot_be_written(store: str, name: str) -> None:
    """As when the disk of the server hangs, for which an advisory lock does not wait."""
    with advisory_alias("patient", store, OPTIONS={"COMMAND_TIMEOUT": 30}):
        with unwritable(store):
            lease = taken(name, "patient", ttl=60, renew=False)
            lease.renew(1)  # the server's limit on the session stays: this process has to free it
            elsewhere(lambda: taken(name, "patient", wait=15).release())
            assert lease.lost
        with lock(name, using="patient", wait=15):
            assert soon(lambda: bool(locks["patient"].inspect(name)))


@on_servers
def test_a_forced_release_spares_the_other_locks_of_the_session(
    store: str, alias: str, name: str
) -> None:
    forced, spared = taken(name, alias), taken(f"{name}spared", alias)
    told = threading.Event()
    forced.on_lost(lambda _: told.set())
    with advisory_alias("other", store):
        info = locks["other"].force_release(name, fencing_token=forced.fencing_token)
        assert info.fencing_token == forced.fencing_token
        theirs = taken(name, "other", wait=0)
        assert told.wait(5)
        spared.check()
        spared.renew()
        for call in (forced.check, forced.renew, forced.release):
            with pytest.raises(LeaseLostError):
                call()
        theirs.release()
    spared.release()


@pytest.mark.parametrize("store", [each for each in SERVERS if each != "postgresql"])
def test_two_forced_releases_of_a_session_that_may_name_four_characters(
    store: str, name: str
) -> None:
    settings = STARTED[store].settings("distlock")
    settings["OPTIONS"]["init_command"] = "SET group_concat_max_len = 4"
    with database_alias("odd", settings), advisory_alias("advisory", "odd"):
        mine = [taken(f"{name}{number}", "advisory") for number in range(2)]
        with advisory_alias("other", store):
            for lease in mine:
                locks["other"].force_release(lease.name, fencing_token=lease.fencing_token)
        for lease in mine:
            with pytest.raises(LeaseLostError):
                lease.release()


@on_servers
def test_a_session_that_is_ended_is_told_without_a_renewal(
    store: str, alias: str, name: str
) -> None:
    leases = [taken(f"{name}{number}", alias, renew=False) for number in range(2)]
    told = [threading.Event() for _ in leases]
    for lease, event in zip(leases, told, strict=True):
        lease.on_lost(lambda _, event=event: event.set())  # type: ignore[misc]
    assert soon(lambda: AdvisoryHolder.objects.using(store).filter(name__contains=name).exists())
    session = advisory(alias)._session_of(leases[0]._hold.claim)
    assert session is not None
    with advisory_alias("other", store):
        other = advisory("other")
        other._look(lambda looker: other.dialect.end(looker, session.number))
    assert all(event.wait(5) for event in told)
    taken(f"{name}0", alias, wait=5).release()


@on_servers
def test_without_connections_to_wait_on_it_polls(store: str, name: str) -> None:
    with advisory_alias("polling", store, OPTIONS={"CONNECTIONS": 0}):
        with lock(name, using="polling"):
            waiter = Elsewhere(lambda: taken(name, "polling", wait=20).release()).start()
            time.sleep(0.2)
            assert not waiter.done()
        waiter.result()


@on_servers
def test_what_is_held_for_a_moment_is_never_written(
    store: str, alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    dialect = advisory(alias).dialect
    insert = dialect.insert

    def counted(session: AdvisorySession, rows: Sequence[dict[str, Any]]) -> None:
        written.append(len(rows))
        insert(session, rows)

    monkeypatch.setattr(dialect, "insert", counted)
    for _ in range(20):
        taken(name, alias).release()
    with lock(name, using=alias):
        assert soon(lambda: bool(written))
    assert sum(written) < 10


@on_servers
def test_rows_of_dead_sessions_show_nothing(store: str, alias: str, name: str) -> None:
    """Left by a crash; one with the number of a session that lives still, but has not the lock."""
    backend = advisory(alias)
    with lock(f"{name}mine", using=alias) as lease:
        session = backend._session_of(lease._hold.claim)
        assert session is not None
        for number, token in ((session.number, 1), (999_999, 2)):
            AdvisoryHolder.objects.using(store).create(
                token=token,
                digest=backend.key(name),
                name=name,
                owner="dead",
                lock_key=backend.dialect.lock_of(session, backend.key(name)),
                session=number,
                acquired=0,
            )
        assert backend.inspect(name) is None
        assert [info.name for info in backend.held(name)] == [f"{name}mine"]
    with lock(name, using=alias) as lease:
        (info,) = backend.held(name)
        assert info.fencing_token == lease.fencing_token
    backend._look(backend.dialect.tidy)
    assert not AdvisoryHolder.objects.using(store).filter(owner="dead").exists()


@on_servers
def test_a_lock_of_another_program_is_shown_as_held(store: str, alias: str, name: str) -> None:
    """It is held, and no more is known."""
    backend = advisory(alias)
    with lock(name, using=alias) as lease:
        session = backend._session_of(lease._hold.claim)
        assert session is not None
        word = backend.dialect.lock_of(session, backend.key(name))
    sql = ByStore(
        postgresql=("SELECT pg_advisory_lock(%s::bigint)", "SELECT pg_advisory_unlock_all()"),
        mariadb=("SELECT GET_LOCK(%s, 5)", "SELECT RELEASE_ALL_LOCKS()"),
    )[store]
    with connections[store].cursor() as cursor:
        cursor.execute(sql[0], [word])
        try:
            info = backend.inspect(name)
            assert info is not None
            assert info.fencing_token is None
            with pytest.raises(UnsupportedOperationError, match="none of this backend's"):
                backend.force_release(name)
            assert elsewhere(lock(name, using=alias, wait=0).acquire) is None
        finally:
            cursor.execute(sql[1])
    assert backend.inspect(name) is None


@on_servers
def test_tokens_rise_though_the_clock_was_set_back(store: str, name: str) -> None:
    """The server was started anew; its clock is an hour behind the tokens that it gave."""
    ahead = round(time.time() * 1_000_000) + AHEAD
    if store == "postgresql":
        sql = "SELECT setval(pg_get_serial_sequence('distlock_advisory', 'token'), %s)"
    else:
        sql = "UPDATE distlock_advisory_run SET run = 'before', base = %s"
    with advisory_alias("first", store):
        taken(name, "first").release()  # the row is there
    with connections[store].cursor() as cursor:
        cursor.execute(sql, [ahead])
    with advisory_alias("second", store), lock(name, using="second") as lease:
        assert lease.fencing_token > ahead
    # What follows in this run of the tests is to be near the clock again.
    with connections[store].cursor() as cursor:
        if store == "postgresql":
            cursor.execute(sql, [ahead - AHEAD])
        else:
            cursor.execute("DELETE FROM distlock_advisory_run")


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "mariadb"])
def test_a_table_that_was_emptied_is_filled_again(store: str, alias: str, name: str) -> None:
    with lock(name, using=alias) as lease:
        before = lease.fencing_token
        with connections[store].cursor() as cursor:
            cursor.execute("DELETE FROM distlock_advisory_run")
        with lock(f"{name}other", using=alias, wait=5):
            pass
        lease.renew()
    with lock(name, using=alias) as lease:
        assert lease.fencing_token > before


@on_servers
def test_tokens_go_on_from_those_of_the_table(store: str, alias: str, name: str) -> None:
    """A project may change its backend, and back."""
    tokens = []
    for using in (store, alias, store, alias):
        with advisory_alias("fresh", store), lock(name, using=using) as lease:
            tokens.append(lease.fencing_token)
        time.sleep(0.1)
    assert tokens == sorted(set(tokens))


@on_servers
def test_a_role_that_may_not_end_a_session(store: str, alias: str, name: str) -> None:
    """It need not: the holder's process releases the lock itself."""
    lease = taken(name, alias)
    weak = database_alias("looker", weak_role(store, "looker"))
    if store == "postgresql":
        with connections[store].cursor() as cursor:
            cursor.execute("GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA public TO looker")
    with weak, advisory_alias("other", "looker"):
        locks["other"].force_release(name)
    with pytest.raises(LeaseLostError):
        lease.renew()


@on_servers
def test_a_server_that_cannot_be_reached(store: str, name: str) -> None:
    wanted = pytest.raises(LockBackendError, match="nowhere")
    nowhere = database_alias("nowhere", unreachable(store))
    with nowhere, advisory_alias("nowhere", "nowhere"), wanted:
        lock(name, using="nowhere", wait=0).acquire()


@on_servers
def test_an_idle_session_is_closed_in_the_end(store: str, name: str) -> None:
    with advisory_alias("brief", store):
        taken(name, "brief", ttl=1.0).release()
        assert soon(lambda: not advisory("brief")._shared)
        taken(name, "brief", ttl=1.0).release()


@on_servers
def test_names_with_one_key_exclude_each_other(
    store: str, alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has 64 bits for a lock on PostgreSQL; no other harm is done."""
    monkeypatch.setattr(advisory(alias).dialect, "lock_of", lambda session, key: "42")
    with lock(f"{name}one", using=alias) as one:
        assert lock(f"{name}two", using=alias, wait=0).acquire() is None
        waiter = Elsewhere(lambda: taken(f"{name}two", alias, wait=20)).start()
        time.sleep(0.2)
        assert not waiter.done()
        one.renew()
    two = waiter.result()
    assert two.fencing_token > one.fencing_token
    two.release()


@on_servers
def test_a_wait_goes_on_when_the_servers_limit_has_ended_it(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends each wait after five minutes, so that no dead client's lasts for ever."""
    if store == "postgresql":
        limits = (*postgresql.SET_UP, "SET lock_timeout = 200")
        monkeypatch.setattr(postgresql, "SET_UP", limits)
    else:
        wait = ("SELECT GET_LOCK(%(lock)s, 0.2)", mysql.DRAW)
        monkeypatch.setattr(mysql, "WAIT", wait)
    with advisory_alias("brief", store):
        with lock(name, using="brief"):
            waiter = Elsewhere(lambda: taken(name, "brief", wait=20).release()).start()
            time.sleep(1.0)
            assert not waiter.done()
        waiter.result()
        elsewhere(lambda: taken(name, "brief", wait=0).release())


@on_servers
def test_an_error_in_place_of_a_late_answer_is_not_the_next_ones(
    store: str, alias: str, name: str
) -> None:
    wrong = ByStore(postgresql="SELECT 1 / 0", mariadb="SELECT no_such_function()")[store]
    with lock(name, using=alias) as lease:
        session = advisory(alias)._session_of(lease._hold.claim)
        assert session is not None
        told: list[object] = []
        with session.mutex:
            session.send([wrong], {})
            session._late = told.append
        lease.renew()
        assert told == [None]
        with lock(f"{name}other", using=alias, wait=0):
            pass
