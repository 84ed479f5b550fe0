"""Cleaning a lock table: what goes, what stays, and who is not disturbed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_distlock import Lease, LockBackendError, lock, locks
from django_distlock.backends.table import portable
from django_distlock.backends.table.statements import TextStatements
from tests.backends.rows import DAY, HOUR, digests, emptied, put
from tests.backends.test_statements import empty_database, using
from tests.backends.tools import (
    STORES,
    Elsewhere,
    Undo,
    elsewhere,
    lock_alias,
    table,
    undone,
    unreachable,
    unreachable_is_told,
)

WEEK = 7 * DAY


@pytest.fixture(params=["auto", "portable"])
def sql(request: pytest.FixtureRequest) -> str:
    """Whose statements it is done with."""
    return str(request.param)


@pytest.fixture
def alias(quiet: dict[str, Any], sql: str) -> Iterator[str]:
    """A lock alias on an empty table that nobody else uses."""
    with using(quiet, RENEW=False, OPTIONS={"SQL": sql}) as alias:
        emptied(alias)
        yield alias
        emptied(alias)


# -- what is idle --------------------------------------------------------------------------------

IDLE: dict[str, dict[str, Any]] = {
    "freed long ago": {"granted": 8 * DAY, "freed": 8 * DAY - 1},
    "freed just long enough ago": {"granted": 8 * DAY, "freed": WEEK + 5},
    "ran out long ago": {"granted": 9 * DAY, "ends": -8 * DAY},
    "granted long ago and cleared by hand": {"granted": 8 * DAY},
}
KEPT: dict[str, dict[str, Any]] = {
    "freed a moment ago": {"granted": 1, "freed": 0},
    "freed lately": {"granted": 2 * DAY, "freed": DAY},
    "freed not quite long enough ago": {"granted": 8 * DAY, "freed": WEEK - 60},
    "freed a moment ago after a long hold": {"granted": 300 * DAY, "freed": 1},
    "ran out lately": {"granted": 8 * DAY, "ends": -DAY},
    "ran out lately after a long hold": {"granted": 300 * DAY, "ends": -1},
    "held": {"granted": 1, "ends": 30},
    "held for long": {"granted": 300 * DAY, "ends": 30},
    "held for years to come": {"granted": 8 * DAY, "ends": 3650 * DAY},
    "granted lately and cleared by hand": {"granted": DAY},
    "a token that is ahead of a clock set back": {"granted": -DAY, "freed": 30 * DAY},
    "ended ahead of a clock set back": {"granted": 30 * DAY, "freed": -DAY},
}


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry", "wet"])
def test_what_is_idle_goes_and_the_rest_stays(alias: str, dry_run: bool) -> None:
    idle = {put(alias, what, **when) for what, when in IDLE.items()}
    kept = {put(alias, what, **when) for what, when in KEPT.items()}
    done = locks[alias].clean(older_than=WEEK, dry_run=dry_run)
    assert (done.removed, done.seen) == (len(idle), len(idle) + len(kept))
    assert digests(alias) == (idle | kept if dry_run else kept)


@pytest.mark.parametrize("what", [*IDLE, *KEPT])
def test_each_by_itself(alias: str, what: str) -> None:
    put(alias, what, **(IDLE | KEPT)[what])
    assert locks[alias].clean(older_than=WEEK).removed == int(what in IDLE)


def test_a_release_and_an_expiry_begin_the_idle_time(alias: str, name: str) -> None:
    """The same, by the library's own statements and the database's clock."""
    long = put(alias, name, granted=300 * DAY, ends=30)
    released = lock(f"{name}:2", using=alias).acquire()
    assert released
    released.release()
    locks[alias].force_release(name)
    assert locks[alias].clean(older_than=60).removed == 0
    assert long in digests(alias)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT expires FROM distlock_lock")
        for (expires,) in cursor.fetchall():
            assert abs(time.time() + expires / 1_000_000) < 30


def test_rows_of_other_prefixes_and_of_nobody_are_seen(alias: str) -> None:
    put(alias, "ours", granted=8 * DAY, freed=8 * DAY)
    put(alias, "theirs", granted=8 * DAY, freed=8 * DAY, prefix="gone from the settings")
    assert locks[alias].clean(older_than=WEEK).removed == 2


# -- tokens, and clocks that are set back --------------------------------------------------------


def test_tokens_rise_over_a_row_that_is_gone(alias: str, name: str) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY)
    before = round((time.time() - 8 * DAY) * 1_000_000)
    assert locks[alias].clean(older_than=WEEK).removed == 1
    with lock(name, using=alias) as lease:
        assert lease.fencing_token > before


@contextmanager
def set_back(alias: str, seconds: float) -> Iterator[None]:
    """Let SQLite's clock, which is the host's, be behind for a while."""
    statements = table(alias).statements()

    def clock() -> int:
        return time.time_ns() // 1000 - round(seconds * 1_000_000)

    if not isinstance(statements, TextStatements):
        late = SimpleNamespace(time_ns=lambda: clock() * 1000)
        with mock.patch.object(portable, "time", late):
            yield
        return
    dialect = statements.dialect
    statements.dialect = replace(dialect, clock=lambda: {"now": clock()})
    try:
        yield
    finally:
        statements.dialect = dialect


@pytest.mark.parametrize("store", [store for store in STORES if store == "sqlite"])
@pytest.mark.parametrize("back", [1e-6, 1.0, HOUR, 400 * DAY])
def test_a_released_lock_is_free_also_when_the_clock_goes_back(
    alias: str, name: str, back: float
) -> None:
    lease = lock(name, using=alias).acquire()
    assert lease
    lease.release()
    with set_back(alias, back):
        assert not lock(name, using=alias).locked()
        assert list(locks[alias].held()) == []
        again = elsewhere(lock(name, using=alias, wait=0).acquire)
        assert again
        assert again.fencing_token > lease.fencing_token
        # The token keeps the row, though by this clock nobody will have used it for long.
        again.release()
        assert locks[alias].clean(older_than=60).removed == 0
    with lock(name, using=alias) as last:
        assert last.fencing_token > again.fencing_token


# -- beside those who take locks -----------------------------------------------------------------


@contextmanager
def before_removing(database: str, act: Callable[[], None]) -> Iterator[None]:
    """Act between the look at a batch and its removal."""

    def wrapper(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "DELETE" in sql:
            act()
        return execute(sql, *rest)

    with connections[database].execute_wrapper(wrapper):
        yield


def test_a_row_that_is_taken_after_the_look_stays(alias: str, name: str) -> None:
    for number in range(4):
        put(alias, f"{name}:{number}", granted=8 * DAY, freed=8 * DAY)
    taken: list[Lease | None] = []

    def take() -> None:
        for number in range(2):
            lease = elsewhere(lock(f"{name}:{number}", using=alias, ttl=60).acquire)
            taken.append(lease)
        assert taken[1]
        taken[1].release()  # used and free again: not idle for long any more

    with before_removing(alias, take):
        done = locks[alias].clean(older_than=WEEK)
    assert (done.removed, done.seen) == (2, 4)
    assert taken[0]
    taken[0].renew()
    assert [info.name for info in locks[alias].held()] == [f"{name}:0"]
    taken[0].release()


def test_a_row_that_another_cleaner_removed_after_the_look_is_not_counted_twice(
    alias: str, name: str
) -> None:
    for number in range(4):
        put(alias, f"{name}:{number}", granted=8 * DAY, freed=8 * DAY)
    others: list[int] = []

    def clean() -> None:
        others.append(elsewhere(lambda: locks[alias].clean(older_than=WEEK).removed))

    with before_removing(alias, clean):
        assert locks[alias].clean(older_than=WEEK).removed == 0
    assert others == [4]


def test_several_clean_at_once(alias: str, name: str) -> None:
    kept = {put(alias, f"{name}:kept:{n}", granted=DAY, freed=DAY) for n in range(50)}
    for number in range(600):
        put(alias, f"{name}:{number}", granted=8 * DAY, freed=8 * DAY)
    cleaners = [
        Elsewhere(partial(locks[alias].clean, older_than=WEEK, batch=size)).start()
        for size in (7, 20, 50)
    ]
    removed = sum(cleaner.result().removed for cleaner in cleaners)
    # On PostgreSQL each passes by what another is about to remove, for good or for the next time.
    assert removed + locks[alias].clean(older_than=WEEK).removed == 600
    assert digests(alias) == kept


@pytest.mark.parametrize("store", [store for store in STORES if store == "postgresql"])
@pytest.mark.parametrize("sql", ["auto"])
def test_a_row_that_is_locked_is_passed_by(alias: str, name: str) -> None:
    for number in range(3):
        put(alias, f"{name}:{number}", granted=8 * DAY, freed=8 * DAY)

    def clean() -> int:
        return locks[alias].clean(older_than=WEEK).removed

    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            key = locks[alias].key(f"{name}:1")
            cursor.execute("SELECT 1 FROM distlock_lock WHERE digest = %s FOR UPDATE", [key])
        began = time.monotonic()
        assert elsewhere(clean) == 2
        assert time.monotonic() - began < 4
    assert clean() == 1


def test_inside_a_transaction(alias: str, name: str) -> None:
    """On SQLite it is part of it; elsewhere it has connections of its own."""
    key = put(alias, name, granted=8 * DAY, freed=8 * DAY)
    with undone(), transaction.atomic(using=alias):
        assert locks[alias].clean(older_than=WEEK).removed == 1
        raise Undo
    assert digests(alias) == ({key} if connections[alias].vendor == "sqlite" else set())


# -- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "pages", "removals"), [(5, 5, 5), (23, 2, 1), (24, 1, 1)])
def test_it_goes_by_batches(
    alias: str, sql: str, name: str, batch: int, pages: int, removals: int
) -> None:
    """23 rows: the last page is the first that is not full."""
    for number in range(23):
        put(alias, f"{name}:{number}", granted=8 * DAY, freed=8 * DAY)
    locks[alias].inspect(name)  # what the first use has to ask
    with CaptureQueriesContext(connections[alias]) as queries:
        done = locks[alias].clean(older_than=WEEK, batch=batch)
    assert (done.removed, done.seen, done.cursor) == (23, 23, None)
    deletes = [query["sql"] for query in queries if "DELETE" in query["sql"]]
    clocks = removals if sql == "portable" else 0  # it is read before it is sent back
    assert (len(queries) - len(deletes), len(deletes)) == (pages + clocks, removals)
    assert digests(alias) == set()


def test_what_is_not_idle_costs_no_write(alias: str, name: str) -> None:
    for number in range(5):
        put(alias, f"{name}:{number}", granted=DAY, freed=DAY)
    locks[alias].inspect(name)  # what the first use has to ask
    with CaptureQueriesContext(connections[alias]) as queries:
        assert locks[alias].clean(older_than=WEEK, batch=2).seen == 5
    assert all(query["sql"].startswith("SELECT") for query in queries)


def test_the_largest_batch(alias: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 rows: as many parameters in one statement."""
    monkeypatch.setattr(locks[alias], "command_timeout", 60.0)
    key = put(alias, name, granted=8 * DAY, freed=8 * DAY)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT * FROM distlock_lock")
        [row] = cursor.fetchall()
        rows = [[f"{number:064x}", *row[1:]] for number in range(10_000)]
        cursor.executemany("INSERT INTO distlock_lock VALUES (%s,%s,%s,%s,%s,%s,%s)", rows)
    done = locks[alias].clean(older_than=WEEK, batch=10_000)
    assert (done.removed, done.seen) == (10_001, 10_001)
    assert key not in digests(alias)


# -- databases that are not ready ----------------------------------------------------------------


def test_a_missing_table_says_migrate(store: str, tmp_path: Path) -> None:
    with using(empty_database(store, "uncleaned", tmp_path)) as alias:
        says = r"manage\.py migrate django_distlock --database own"
        for dry_run in (True, False):
            with pytest.raises(LockBackendError, match=says) as info:
                locks[alias].clean(older_than=WEEK, dry_run=dry_run)
            assert info.value.alias == alias


def test_a_database_that_is_down_is_named(store: str) -> None:
    with using(unreachable(store)) as alias, pytest.raises(LockBackendError) as info:
        locks[alias].clean(older_than=WEEK)
    assert unreachable_is_told(store, "own") in str(info.value)
    assert isinstance(info.value.__cause__, Exception)


# -- which aliases share a table -----------------------------------------------------------------


def test_aliases_of_one_database_are_cleaned_together(store: str) -> None:
    with (
        lock_alias("first", LOCATION=store, PREFIX="a"),
        lock_alias("second", LOCATION=store, PREFIX="b", OPTIONS={"COMMAND_TIMEOUT": 9}),
    ):
        assert locks["first"].cleaned_with() == locks["second"].cleaned_with()
        assert locks["first"].cleaned_with() != locks["locmem"].cleaned_with()


def test_two_aliases_of_databases_may_name_one_table(store: str, quiet: dict[str, Any]) -> None:
    with using(dict(connections.settings[store])) as alias:
        assert locks[alias].cleaned_with() == locks[store].cleaned_with()
    with using(quiet) as alias:
        assert locks[alias].cleaned_with() != locks[store].cleaned_with()
