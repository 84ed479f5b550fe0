"""Settings of a database that change what a statement means, and settings of the program's."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction

from django_distlock import (
    InvalidLockBackendError,
    LockBackendError,
    UnsupportedOperationError,
    lock,
)
from django_distlock.backends.table import checks
from django_distlock.core.watchdog import worker_of
from django_distlock.core.worker import Worker
from django_distlock.handler import locks
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from django_distlock.transactions import Block
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    elsewhere,
    lock_alias,
)
from tests.conftest import SERVERS as STARTED
from tests.proxy import Proxy
from tests.servers import chosen

ADVISORY = "django_distlock.backends.advisory.AdvisoryBackend"
ROW = "django_distlock.backends.row.RowBackend"
VERSION = "django_distlock.backends.version.VersionBackend"
BACKENDS: dict[str, dict[str, Any]] = {
    "table": {},
    "version": {"BACKEND": VERSION},
    "row": {"BACKEND": ROW},
}

# One parameter where there is a MariaDB, else none: then the tests are left out.
on_mariadb = pytest.mark.parametrize("store", [store for store in SERVERS if store == "mariadb"])
on_postgresql = pytest.mark.parametrize(
    "store", [store for store in SERVERS if store == "postgresql"]
)
on_sqlite = pytest.mark.parametrize("store", [store for store in chosen() if store == "sqlite"])

MODES = (
    "ANSI_QUOTES",
    "EMPTY_STRING_IS_NULL",
    "HIGH_NOT_PRECEDENCE",
    "IGNORE_SPACE",
    "MSSQL",
    "NO_BACKSLASH_ESCAPES",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE",
    "ORACLE",
    "PAD_CHAR_TO_FULL_LENGTH",
    "PIPES_AS_CONCAT",
    "SIMULTANEOUS_ASSIGNMENT",
    "TIME_ROUND_FRACTIONAL",
    "TRADITIONAL",
)
"""What MariaDB's sql_mode may be; each beside STRICT_TRANS_TABLES, which Django asks for."""


def stress(alias: str, name: str, *, threads: int = 4, rounds: int = 15) -> list[int]:
    """Take a lock in several threads at once; return the tokens in the order of the grants."""
    inside: list[int] = []
    tokens: list[int] = []

    def work() -> None:
        for number in range(rounds):
            with lock(name, using=alias, wait=20, ttl=20) as lease:
                inside.append(number)
                assert len(inside) == 1, "two hold the lock at once"
                tokens.append(lease.fencing_token)
                inside.pop()

    for worker in [Elsewhere(work).start() for _ in range(threads)]:
        worker.result()
    return tokens


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
@on_mariadb
def test_every_sql_mode(store: str, backend: str, mode: str, name: str) -> None:
    """One holder at a time, rising tokens, and releases that are none too late."""
    settings = STARTED[store].settings("distlock")
    settings["OPTIONS"]["init_command"] = f"SET sql_mode='{mode},STRICT_TRANS_TABLES'"
    with (
        database_alias("odd", settings),
        lock_alias("odd", LOCATION="odd", **BACKENDS[backend]),
    ):
        tokens = stress("odd", name)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 60


@contextmanager
def engine(database: str, table: str, name: str) -> Iterator[None]:
    """Give a table another engine for a while."""
    with connections[database].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ENGINE={name}")
        try:
            yield
        finally:
            cursor.execute(f"ALTER TABLE {table} ENGINE=InnoDB")


@pytest.mark.parametrize("other", ["Aria", "MyISAM"])
@on_mariadb
def test_an_engine_without_row_locks_is_refused(store: str, other: str, name: str) -> None:
    """A row lock there would exclude nobody, and nothing would say so."""
    settings = STARTED[store].create_database("odd_engine")
    with database_alias("odd", settings), lock_alias("odd", LOCATION="odd", BACKEND=ROW):
        call_command("migrate", database="odd", verbosity=0)
        with (
            engine("odd", "distlock_row", other),
            pytest.raises(InvalidLockBackendError, match="ENGINE=InnoDB"),
        ):
            lock(name, using="odd", wait=0).acquire()
        with (
            engine("odd", "distlock_lock", other),
            transaction.atomic("odd"),
            pytest.raises(UnsupportedOperationError, match="ENGINE=InnoDB"),
        ):
            lock_rows(LockRow.objects.using("odd").all())
        STARTED[store].execute("DROP DATABASE odd_engine")


@on_mariadb
def test_the_row_table_has_row_locks_whatever_the_servers_default(store: str) -> None:
    settings = STARTED[store].create_database("odd_default")
    settings["OPTIONS"]["init_command"] = "SET default_storage_engine=Aria"
    with database_alias("odd", settings) as connection:
        call_command("migrate", database="odd", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT ENGINE FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'distlock_row'"
            )
            assert cursor.fetchone() == ("InnoDB",)
        STARTED[store].execute("DROP DATABASE odd_default")


# -- SQLite ----------------------------------------------------------------------------------------


def file_settings(folder: Path, **options: Any) -> dict[str, Any]:
    init = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    given = {"init_command": init, **options}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db"), "OPTIONS": given}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[str]:
    """The alias "own", on a file of the test's own."""
    with database_alias("own", file_settings(tmp_path)), lock_alias("own", LOCATION="own"):
        call_command("migrate", database="own", verbosity=0)
        with connections["own"].cursor() as cursor:
            cursor.execute("CREATE TABLE word (word text)")
        yield "own"


def write(word: str) -> None:
    with connections["own"].cursor() as cursor:
        cursor.execute("INSERT INTO word VALUES (%s)", [word])


@pytest.mark.parametrize("wait", [0, 5, None])
@on_sqlite
def test_a_stale_snapshot_fails_at_once(
    store: str, own: str, name: str, wait: float | None
) -> None:
    """A transaction that has read before another one wrote can never write in it."""
    started = time.monotonic()
    with transaction.atomic(own):
        with connections[own].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM word")
        elsewhere(lambda: write("meanwhile"))
        with pytest.raises(LockBackendError, match="IMMEDIATE"):
            lock(name, using=own, wait=wait).acquire()
    assert time.monotonic() - started < 4
    with lock(name, using=own, wait=0):
        pass


@on_sqlite
def test_the_callers_own_write_is_not_waited_for(store: str, own: str, name: str) -> None:
    """With autocommit off a lock would wait for the caller's own transaction."""
    connections[own].ensure_connection()
    connections[own].set_autocommit(False)
    try:
        write("mine")
        with pytest.raises(LockBackendError, match="Commit before"):
            lock(name, using=own, wait=None).acquire()
        connections[own].rollback()
    finally:
        connections[own].set_autocommit(True)


@pytest.mark.parametrize("milliseconds", [10, 30_000])
@on_sqlite
def test_the_programs_busy_timeout_stays(
    store: str, own: str, name: str, milliseconds: int
) -> None:
    connections[own].ensure_connection()
    raw: sqlite3.Connection = connections[own].connection
    raw.execute(f"PRAGMA busy_timeout = {milliseconds}")
    for wait in (0, 1, 20):
        with lock(name, using=own, wait=wait):
            pass
        assert raw.execute("PRAGMA busy_timeout").fetchone() == (milliseconds,)


# -- answers, pools, cost --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["table", "version"])
@pytest.mark.parametrize("store", SERVERS)
def test_a_release_whose_answer_was_lost_is_a_release(store: str, backend: str, name: str) -> None:
    """Nothing was lost: no error says that the work is to be undone."""
    with Proxy(STARTED[store].port) as proxy:
        settings = STARTED[store].settings("distlock") | {"PORT": proxy.port}
        with (
            database_alias("odd", settings),
            lock_alias("odd", LOCATION="odd", **BACKENDS[backend]),
            lock(name, using="odd", ttl=20),
        ):
            fault = proxy.fault(b"UPDATE distlock_lock", to="answer")
        fault.wait()
    assert LockRow.objects.using(store).filter(name=name, expires__gt=0).count() == 0


@on_postgresql
def test_no_pool_is_no_pool(store: str, name: str) -> None:
    settings = STARTED[store].settings("distlock")
    settings["OPTIONS"] = {"pool": False}
    with database_alias("odd", settings), lock_alias("odd", LOCATION="odd", **BACKENDS["table"]):
        assert locks["odd"].notifies
        with lock(name, using="odd"):
            pass


@on_postgresql
def test_a_dry_pool_is_not_waited_for(store: str, name: str) -> None:
    settings = STARTED[store].settings("distlock")
    settings["OPTIONS"] = {"pool": {"min_size": 1, "max_size": 1, "timeout": 20}}
    with database_alias("odd", settings) as connection, lock_alias("odd", LOCATION="odd"):
        connection.ensure_connection()  # all that the pool has
        started = time.monotonic()

        def take() -> bool:
            with lock(name, using="odd", wait=5):
                return True

        assert elsewhere(take)
        assert time.monotonic() - started < 10
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["table", "version"])
@on_postgresql
def test_one_row_for_a_name_whichever_schema_is_first(store: str, backend: str, name: str) -> None:
    """As with django-tenants, which sets the search_path of the connection at any moment."""
    settings = STARTED[store].settings("distlock")
    conf = BACKENDS[backend] | {"LOCATION": "odd", "OPTIONS": {"SCHEMA": "public"}}
    with database_alias("odd", settings) as connection, lock_alias("odd", **conf):
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS tenant")
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS tenant.distlock_lock"
                " (LIKE public.distlock_lock INCLUDING ALL)"
            )
            cursor.execute("SET search_path TO tenant, public")
        with lock(name, using="odd", wait=0, ttl=20) as lease:  # there, in autocommit
            assert elsewhere(lambda: lock(name, using="odd", wait=0).acquire()) is None
            with transaction.atomic("odd"):  # and on a connection of ours
                inside = lock(f"{name}-inside", using="odd", wait=0).acquire()
                assert inside
                inside.release()
            worker_of(locks["odd"]).submit(lease.renew)  # on a thread with another path
            drained(worker_of(locks["odd"]))
            lease.check()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM tenant.distlock_lock")
            assert cursor.fetchone() == (0,)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"NAME": "nowhere"}, "NAME, USER and PASSWORD"),
        ({"USER": "stranger", "PASSWORD": "x"}, "NAME, USER and PASSWORD"),
        ({"PORT": "1"}, "HOST, PORT and OPTIONS"),
        ({"HOST": "nowhere.invalid"}, "HOST, PORT and OPTIONS"),
    ],
)
@pytest.mark.parametrize("backend", [*BACKENDS, "advisory"])
@pytest.mark.parametrize("store", SERVERS)
def test_what_is_wrong_with_a_database_is_named(
    store: str, backend: str, wrong: dict[str, str], remedy: str
) -> None:
    conf = BACKENDS.get(backend, {"BACKEND": ADVISORY}) | {"LOCATION": "odd"}
    with (
        database_alias("odd", connections.settings[store] | wrong),
        lock_alias("odd", **conf),
        pytest.raises(LockBackendError, match=f"Look at {remedy} of DATABASES.'odd'."),
    ):
        lock("a", using="odd").acquire(wait=0)


def drained(worker: Worker) -> None:
    """Wait until a worker has done what it has."""
    done = threading.Event()
    worker.submit(done.set)
    assert done.wait(10)


@pytest.mark.parametrize("schema", ["", "a.b", 'a"b', "1a", "é", 5])
def test_a_schema_is_a_plain_name(schema: object) -> None:
    conf = {"OPTIONS": {"SCHEMA": schema}}
    with lock_alias("odd", **conf), pytest.raises(InvalidLockBackendError, match="SCHEMA"):
        lock("a", using="odd").acquire()


def test_a_schema_is_for_postgresql() -> None:
    with (
        lock_alias("odd", OPTIONS={"SCHEMA": "public"}),
        pytest.raises(InvalidLockBackendError, match="is for PostgreSQL"),
    ):
        lock("a", using="odd").acquire()


def test_tenants_without_a_schema_are_warned_of() -> None:
    engine = {"ENGINE": "django_tenants.postgresql_backend", "NAME": "x"}
    connections.settings["odd"] = connections.configure_settings({"default": {}, "odd": engine})[
        "odd"
    ]
    try:
        wrapper = connections["default"].copy("odd")
        wrapper.settings_dict = connections.settings["odd"]
        connections["odd"] = wrapper
        assert [each.id for each in checks.check("a", "odd", "auto")] == ["distlock.W006"]
        assert checks.check("a", "odd", "auto", schema="public") == []
    finally:
        del connections["odd"]
        del connections.settings["odd"]


def test_the_cost_of_a_lock_in_a_transaction_does_not_grow(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """However many were taken in it before."""
    looks = 0
    is_open = Block.is_open

    def counted(block: Block) -> bool:
        nonlocal looks
        looks += 1
        return is_open(block)

    monkeypatch.setattr(Block, "is_open", counted)
    costs = []
    with transaction.atomic():
        for number in range(60):
            looks = 0
            with lock(f"{name}{number}", using="locmem"):
                pass
            costs.append(looks)
    assert costs[-1] <= costs[10]
