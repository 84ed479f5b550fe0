"""What a lock costs its database, and what it says of one that is not as it should be."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext, override_settings

from django_distlock import Lease, LockBackendError, LockNotAcquiredError, lock, locks
from django_distlock.core.values import Claim, HolderInfo, Refusal
from tests.backends.rowlocks import row_alias
from tests.backends.tools import (
    SERVERS,
    Cell,
    database_alias,
    elsewhere,
    follow,
    lock_alias,
    one_value,
    unreachable,
    unreachable_is_told,
)
from tests.conftest import SERVERS as STARTED

LOSSES = 40


@contextmanager
def using(settings: dict[str, Any], **conf: Any) -> Iterator[str]:
    """Open an alias "own" of DATABASES and of DISTLOCKS."""
    with database_alias("own", settings), lock_alias("own", LOCATION="own", **conf) as alias:
        yield alias


def empty_database(store: str, name: str, folder: Path) -> dict[str, Any]:
    """Return the settings of a new database without tables."""
    if store in SERVERS:
        return STARTED[store].create_database(name)
    return dict(connections.settings[store]) | {"NAME": str(folder / f"{name}.sqlite3")}


# -- how many statements -------------------------------------------------------------------------


@pytest.fixture
def store(store: str, name: str) -> str:
    """Connect to the store: a new connection has statements of its own."""
    locks[store].inspect(name)
    return store


def most(store: str) -> int:
    """Return the statements of an attempt: SQLite may look before it asks for the file."""
    return 2 if store == "sqlite" else 1


def test_one_statement_to_acquire_and_one_to_release(store: str, name: str) -> None:
    new = 2 if store == "postgresql" else most(store)
    for limit in (new, most(store)):  # a name never seen, and one that has a row
        with CaptureQueriesContext(connections[store]) as queries, lock(name, using=store):
            acquiring = len(queries)
        assert 1 <= acquiring <= limit
        assert len(queries) - acquiring == 1


def test_one_statement_to_renew_and_none_to_check(store: str, name: str) -> None:
    with lock(name, using=store) as lease:
        with CaptureQueriesContext(connections[store]) as queries:
            lease.renew()
        assert len(queries) == 1
        with CaptureQueriesContext(connections[store]) as queries:
            lease.check()
            assert lease.remaining() > 0
        assert len(queries) == 0


def test_one_statement_to_lose(store: str, name: str) -> None:
    """And it tells the holder, and how long that lease lasts."""
    with taken_by_another(name, store):
        with (
            CaptureQueriesContext(connections[store]) as queries,
            pytest.raises(LockNotAcquiredError) as info,
            lock(name, using=store, wait=0),
        ):
            pytest.fail("the block was entered")
        # MySQL tells no rows of what is written: the loser looks.
        assert 1 <= len(queries) <= (2 if store == "mysql" else most(store))
    assert info.value.retry_after is not None
    assert 0 < info.value.retry_after <= 30
    assert "pid" in str(info.value)


@pytest.mark.parametrize("limit", [0.5, 5.0])
def test_who_loses_a_name_never_seen_is_told_who_holds_it(
    store: str, name: str, limit: float
) -> None:
    """Another makes the row when we have seen that there is none."""
    taken: list[Lease | None] = []

    def wrapper(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "INSERT" in sql and not taken:
            taken.append(elsewhere(lock(name, using=store, wait=0, renew=False).acquire))
        return execute(sql, *rest)

    backend = locks[store]
    claim = Claim(name, backend.key(name), "ours", 30.0)
    with connections[store].execute_wrapper(wrapper):
        answer = backend.try_acquire(claim, limit)
    [lease] = taken
    assert lease is not None
    lease.check()
    assert isinstance(answer, Refusal)
    assert HolderInfo.loads(answer.note).holder.pid == os.getpid()
    assert answer.remaining is not None
    assert 0 < answer.remaining <= 31
    lease.release()


def test_none_on_the_connection_of_a_transaction(store: str, name: str) -> None:
    """But on SQLite, where the lock has to be part of it."""
    with transaction.atomic(using=store), CaptureQueriesContext(connections[store]) as queries:
        with lock(name, using=store):
            pass
        assert 1 <= len(queries) <= 2 if store == "sqlite" else not queries


@contextmanager
def taken_by_another(name: str, alias: str) -> Iterator[None]:
    """Have another thread hold the lock."""
    lease = elsewhere(lock(name, using=alias, renew=False).acquire)
    assert lease
    yield
    lease.release()


# -- who loses writes nothing --------------------------------------------------------------------


def expire_lease(name: str, alias: str) -> None:
    """Lose many times."""
    for _ in range(LOSSES):
        assert lock(name, using=alias, wait=0).acquire() is None


def written(store: str) -> int:
    """Return a number that rises with what is written to the store's log or file."""
    if store == "postgresql":
        return int(one_value("own", "SELECT pg_current_wal_insert_lsn() - '0/0'"))
    if store in ("mariadb", "mysql"):
        # MySQL shows its position in the log late, the number of writes to it at once.
        what = "Innodb_lsn_current" if store == "mariadb" else "Innodb_log_write_requests"
        with connections["own"].cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE %s", [what])
            return int(cursor.fetchone()[1])
    return int(one_value("own", "PRAGMA data_version"))


def test_who_loses_writes_nothing(store: str, quiet: dict[str, Any], name: str) -> None:
    """A round without a byte is proof; the server may write for reasons of its own in all of them.

    MySQL does, now and then for seconds: then a few writes for many losses have to be proof.
    """
    with using(quiet) as alias, taken_by_another(name, alias):
        expire_lease(name, alias)
        grown = []
        for _ in range(5):
            before = written(store)
            elsewhere(lambda: expire_lease(name, alias))
            grown.append(written(store) - before)
            if grown[-1] == 0:
                break
        assert min(grown) < LOSSES / 2, grown


def test_who_wins_writes(store: str, quiet: dict[str, Any], name: str) -> None:
    """Without this the test above could not fail."""

    def win() -> None:
        with lock(name, using=alias):
            pass

    with using(quiet) as alias:
        before = written(store)
        elsewhere(win)
        assert written(store) > before


def test_there_is_no_index_but_the_key(quiet: dict[str, Any]) -> None:
    """Django adds one for LIKE on PostgreSQL, which costs a write for each new name."""
    with using(quiet), connections["own"].cursor() as cursor:
        found: dict[str, Any] = connections["own"].introspection.get_constraints(
            cursor, "distlock_lock"
        )
    kinds = ("index", "unique", "primary_key")
    indexes = [about for about in found.values() if any(about[kind] for kind in kinds)]
    assert [about["columns"] for about in indexes] == [["digest"]]


# -- databases that are not ready ----------------------------------------------------------------


def test_a_missing_table_says_migrate(store: str, name: str, tmp_path: Path) -> None:
    with using(empty_database(store, "unmigrated", tmp_path)) as alias:
        says_migrate = r"manage\.py migrate django_distlock --database own"
        with pytest.raises(LockBackendError, match=says_migrate) as info:
            lock(name, using=alias, wait=5).acquire()
        assert (info.value.name, info.value.alias) == (name, alias)
        with pytest.raises(LockBackendError, match=says_migrate):
            list(locks[alias].held())
        with pytest.raises(LockBackendError, match=says_migrate):
            lock(name, using=alias).locked()
        # `migrate` runs the checks before it makes the table, so that only --deploy asks.
        assert "distlock.W009" not in [each.id for each in locks[alias].check()]
        (found,) = [each for each in locks[alias].check_deploy() if each.id == "distlock.W009"]
        assert re.search(says_migrate, found.msg)


@pytest.mark.parametrize("store", SERVERS)
def test_a_missing_table_of_row_locks_is_told_in_production(store: str, tmp_path: Path) -> None:
    settings = empty_database(store, "unmigrated3", tmp_path)
    with database_alias("own", settings), row_alias("rows", "own"):
        assert [each.id for each in locks["rows"].check_deploy()] == ["distlock.W009"]


@pytest.mark.parametrize("store", SERVERS)
def test_a_missing_table_does_not_break_the_transaction(
    store: str, name: str, tmp_path: Path
) -> None:
    with using(empty_database(store, "unmigrated2", tmp_path)) as alias:
        cell = Cell.new("own", name)
        with transaction.atomic(using="own"):
            cell.write(1)
            with pytest.raises(LockBackendError):
                lock(name, using=alias).acquire()
            cell.write(2)
        assert cell.read() == 2


def test_a_database_that_is_down_is_named(store: str, name: str) -> None:
    with using(unreachable(store)) as alias, pytest.raises(LockBackendError) as info:
        lock(name, using=alias, wait=5).acquire()
    assert (info.value.name, info.value.alias) == (name, alias)
    assert name[:100] in str(info.value)
    assert repr(alias) in str(info.value)
    assert unreachable_is_told(store, "own") in str(info.value)
    assert isinstance(info.value.__cause__, Exception)


@pytest.mark.parametrize("store", SERVERS)
def test_a_database_that_does_not_exist_is_not_to_be_migrated(store: str, name: str) -> None:
    settings = connections.settings[store] | {"NAME": "no_such_database"}
    with using(settings) as alias, pytest.raises(LockBackendError, match="no_such_d") as info:
        lock(name, using=alias, wait=5).acquire()
    assert "manage.py migrate" not in str(info.value)


# -- a database for the locks, a table for two ---------------------------------------------------


class Router:
    """Sends the lock table to the alias "own", and nothing else there."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "own" if model._meta.app_label == "django_distlock" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "own") == (app_label == "django_distlock")


class ByModel(Router):
    """Decides by the name of the model, which not every migration has."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        ours = app_label == "django_distlock" and hints.get("model_name") is not None
        return (db == "own") == ours


def test_a_router_that_decides_by_the_name_of_the_model(
    store: str, name: str, tmp_path: Path
) -> None:
    with (
        using(empty_database(store, "by_model", tmp_path)) as alias,
        database_alias("program", empty_database(store, "without", tmp_path)),
        override_settings(DATABASE_ROUTERS=[f"{__name__}.ByModel"]),
    ):
        for database in ("program", "own"):
            call_command("migrate", "django_distlock", database=database, verbosity=0)
        with lock(name, using=alias):
            pass


def test_a_database_of_its_own_behind_a_router(store: str, name: str, tmp_path: Path) -> None:
    from django_distlock.models import LockRow

    program = empty_database(store, "program", tmp_path)
    with (
        using(empty_database(store, "only_locks", tmp_path)) as alias,
        database_alias("program", program),
        override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]),
    ):
        for database in ("program", "own"):
            call_command("migrate", database=database, verbosity=0)
        assert "distlock_lock" not in connections["program"].introspection.table_names()
        cell = Cell.new("program", name)
        with transaction.atomic(using="program"):
            with (
                CaptureQueriesContext(connections["program"]) as queries,
                lock(name, using=alias) as lease,
            ):
                pass
            assert len(queries) == 0
            cell.write(1)
            waiter = follow(name, alias, cell)
            assert LockRow.objects.filter(token=lease.fencing_token).exists()
        assert waiter.result() == 1


def test_two_prefixes_share_a_table(store: str, name: str) -> None:
    with (
        lock_alias("first", LOCATION=store, PREFIX="a"),
        lock_alias("second", LOCATION=store, PREFIX="b"),
        lock(name, using="first"),
    ):
        assert elsewhere(lock(name, using="first", wait=0).acquire) is None
        assert [info.name for info in locks["first"].held(name)] == [name]
        assert [*locks["second"].held(name), *locks[store].held(name)] == []
        with lock(name, using="second"):
            assert [info.name for info in locks["second"].held(name)] == [name]
            assert [info.name for info in locks["first"].held()] == [name]
        assert lock(name, using="first").locked()


def test_held_reads_page_by_page(store: str, quiet: dict[str, Any], name: str) -> None:
    """1,203 rows, of which 3 are free: three pages, and a fourth to see that there is no more."""
    with using(quiet, RENEW=False) as alias:
        with connections["own"].cursor() as cursor:
            cursor.execute("DELETE FROM distlock_lock")
        leases = [lock(f"{name}:{n}", using=alias, ttl=600).acquire() for n in range(3)]
        with connections["own"].cursor() as cursor:
            cursor.execute("SELECT digest, name, expires FROM distlock_lock")
            _, text, expires = cursor.fetchone()
            rows = []
            for number in range(1200):
                other = re.sub(r":\d$", f":more:{number}", str(text))
                plain = re.sub(r":\d$", f":more:{number}", f"{name}:0")
                rows.append([locks[alias].key(plain), other, "o", number, 0, expires, "{}"])
            cursor.executemany("INSERT INTO distlock_lock VALUES (%s,%s,%s,%s,%s,%s,%s)", rows)
        for lease in leases:
            assert lease
            lease.release()
        with CaptureQueriesContext(connections["own"]) as queries:
            found = [info.name for info in locks[alias].held(name)]
        assert sorted(found) == sorted(f"{name}:more:{number}" for number in range(1200))
        assert len(queries) == 4
        assert list(locks[alias].held("no such name")) == []
        with connections["own"].cursor() as cursor:
            cursor.execute("DELETE FROM distlock_lock")
