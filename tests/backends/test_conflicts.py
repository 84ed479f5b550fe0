"""What a database server asks to try again: it is tried again, and nobody is told.

Each conflict is made certain by a second, raw connection that has locked the lock's row.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_distlock import LockBackendError, lock, locks
from django_distlock.core.values import Claim, Refusal
from tests.backends.tools import SERVERS, Elsewhere, database_alias, lock_alias, one_value
from tests.conftest import SERVERS as STARTED
from tests.servers import ByStore

OURS: dict[tuple[str, str], dict[str, Any]] = {
    # The driver's isolation_level would count in transactions only.
    ("postgresql", "serialization failure"): {
        "options": "-c default_transaction_isolation=repeatable\\ read"
    },
    ("postgresql", "lock timeout"): {"options": "-c lock_timeout=100ms"},
    ("postgresql", "dead lock"): {"options": "-c deadlock_timeout=1s"},
    ("mariadb", "lock timeout"): {"init_command": "SET innodb_lock_wait_timeout = 1"},
    ("mariadb", "dead lock"): {},
    ("mysql", "lock timeout"): {"init_command": "SET innodb_lock_wait_timeout = 1"},
    ("mysql", "dead lock"): {},
    ("postgresql", "no lock timeout"): {},
    ("mariadb", "no lock timeout"): {},
    ("mysql", "no lock timeout"): {},
    # What MariaDB from 11.6 on does by default.
    ("mariadb", "record changed"): {
        "isolation_level": "repeatable read",
        "init_command": "SET innodb_snapshot_isolation = ON",
    },
}
"""The OPTIONS of the connection that meets the conflict."""

LIMITS = {
    "postgresql": "SHOW lock_timeout",
    "mariadb": "SELECT @@max_statement_time",
    "mysql": "SELECT @@max_execution_time",
}
"""What must be for others as it was before."""

CODES = {
    "serialization failure": {"40001"},
    "lock timeout": {"55P03", "1205"},
    "dead lock": {"40P01", "1213"},
    "record changed": {"1020"},
}
HELD = ByStore(postgresql=0.3, mariadb=1.2)
"""Seconds that the raw connection keeps the row: more than one lock timeout."""

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    # innodb_lock_waits is a copy, which does not change while it is asked for often.
    "mariadb": "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_row_lock_current_waits'",
    "mysql": "SELECT variable_value FROM performance_schema.global_status "
    "WHERE variable_name = 'Innodb_row_lock_current_waits'",
}


class Rival:
    """A raw connection that gets in the way of the lock's row."""

    def __init__(self, connection: BaseDatabaseWrapper, store: str, row: str) -> None:
        self._connection = connection
        self.store = store
        self._row = row

    def run(self, *statements: str) -> None:
        """Execute statements."""
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def write_row(self, change: str = "name = concat(name, '!')") -> None:
        """Write the lock's row, by default without a change of what counts."""
        self.run(f"UPDATE distlock_lock SET {change} WHERE digest = '{self._row}'")

    def make_row_again(self) -> None:
        """Delete the lock's row, and begin to make it."""
        row = f"FROM distlock_lock WHERE digest = '{self._row}'"
        columns = "digest, name, owner, token, acquired, expires, note"
        self.run("DROP TABLE IF EXISTS kept", f"CREATE TABLE kept AS SELECT {columns} {row}")
        self.run(f"DELETE {row}", "BEGIN")
        self.run(f"INSERT INTO distlock_lock ({columns}) SELECT {columns} FROM kept")

    def begin(self, kind: str) -> None:
        """Lock what the other will wait for."""
        self.run("BEGIN")
        if kind == "dead lock":
            # MariaDB ends the transaction that has written less, PostgreSQL the one that looks.
            self.run("INSERT INTO ballast VALUES " + ", ".join(["(1)"] * 100))
        if kind in ("dead lock", "record changed"):
            # The other waits for this row when it has locked the lock's and taken its snapshot.
            self.run("UPDATE other SET value = value + 1")
        else:
            self.write_row()

    def end(self, kind: str) -> None:
        """Wait until the other waits for us, and let the conflict happen."""
        limit = time.monotonic() + 10
        while STARTED[self.store].execute(WAITING[self.store]) == "0":
            assert time.monotonic() < limit
            time.sleep(0.02)
        if kind == "dead lock":
            self.write_row()  # waits for the other, who waits for us
        elif kind == "lock timeout":
            time.sleep(HELD[self.store])
        self.run("COMMIT")


class Errors:
    """The codes of the errors that the database gave this thread."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def __call__(self, execute: Callable[..., Any], *args: Any) -> Any:
        try:
            return execute(*args)
        except Exception as error:
            driver: Any = error.__cause__
            self.codes.append(str(getattr(driver, "sqlstate", None) or driver.args[0]))
            raise


@functools.cache
def database(store: str) -> dict[str, Any]:
    """Make a database in which writing a lock's row also writes the row of another table."""
    settings = STARTED[store].create_database("conflicts")
    with database_alias("conflicts", settings) as connection:
        call_command("migrate", database="conflicts", verbosity=0)
        setup = Rival(connection, store, "")
        setup.run("CREATE TABLE other (value integer)", "INSERT INTO other VALUES (0)")
        setup.run("CREATE TABLE ballast (value integer)")
        act = "UPDATE other SET value = value + 1"
        if store == "postgresql":
            body = f"BEGIN {act}; RETURN NEW; END"
            setup.run(f"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS '{body}'")
            act = "EXECUTE FUNCTION f()"
        else:
            act = f"BEGIN SELECT count(*) INTO @snapshot FROM ballast; {act}; END"
            setup.run(f"CREATE TRIGGER r AFTER UPDATE ON distlock_row FOR EACH ROW {act}")
        setup.run(f"CREATE TRIGGER t AFTER UPDATE ON distlock_lock FOR EACH ROW {act}")
    return settings


@pytest.fixture(params=[key for key in OURS if key[0] in SERVERS and key[1] in CODES], ids=" ".join)
def meeting(request: pytest.FixtureRequest, name: str) -> Iterator[tuple[Rival, str]]:
    """A rival for the lock's row, which exists, and the kind of conflict; the alias is "ours"."""
    store, kind = request.param
    own = database(store)
    settings = own | {"OPTIONS": own.get("OPTIONS", {}) | OURS[store, kind]}
    with database_alias("ours", settings), lock_alias("ours", LOCATION="ours"):
        with lock(name, using="ours"):
            pass
        connection = connections["ours"].copy()
        connection.inc_thread_sharing()
        connection.settings_dict["OPTIONS"] = own.get("OPTIONS", {})
        rival = Rival(connection, store, locks["ours"].key(name))
        if store == "postgresql":
            rival.run("SET deadlock_timeout = '20s'")
        yield rival, kind
        connection.close()


@contextmanager
def noted(errors: Errors) -> Iterator[None]:
    """Note the errors of this thread's connection."""
    with connections["ours"].execute_wrapper(errors):
        yield


def meet(rival: Rival, kind: str, work: Callable[[], Any]) -> Any:
    """Do ``work`` in another thread, so that it meets the conflict; return its result."""
    errors = Errors()

    def noting() -> Any:
        with noted(errors):
            return work()

    rival.begin(kind)
    ours = Elsewhere(noting).start()
    rival.end(kind)
    result = ours.result()
    assert set(errors.codes) & CODES[kind], "the conflict was not met"
    assert set(errors.codes) <= CODES[kind]
    return result


def test_acquire(meeting: tuple[Rival, str], name: str) -> None:
    lease = meet(*meeting, lambda: lock(name, using="ours", wait=10).acquire())
    assert lease
    lease.release()


def test_renew(meeting: tuple[Rival, str], name: str) -> None:
    lease = lock(name, using="ours", renew=False).acquire()
    assert lease
    meet(*meeting, lambda: lease.renew())
    lease.check()
    lease.release()


def test_release(meeting: tuple[Rival, str], name: str) -> None:
    lease = lock(name, using="ours", renew=False).acquire()
    assert lease
    meet(*meeting, lambda: lease.release())
    assert not lock(name, using="ours").locked()


@pytest.mark.parametrize(
    "meeting",
    [key for key in OURS if key[0] in SERVERS and key[1] == "serialization failure"],
    ids=" ".join,
    indirect=True,
)
def test_who_loses_to_a_holder_is_refused(meeting: tuple[Rival, str], name: str) -> None:
    """At once: that another holds the lock is no failure of the store."""
    rival, kind = meeting
    backend, errors = locks["ours"], Errors()
    claim = Claim(name, backend.key(name), "me", 20.0, "")

    def attempt() -> Any:
        with noted(errors):
            return backend.call("try_acquire", claim, 20.0, name=name)

    rival.begin(kind)
    rival.write_row(f"owner = 'another', expires = {int((time.time() + 100) * 1_000_000)}")
    ours = Elsewhere(attempt).start()
    rival.end(kind)
    answer = ours.result()
    assert set(errors.codes) == CODES[kind], "the conflict was not met"
    assert isinstance(answer, Refusal)
    assert answer.remaining == pytest.approx(100, abs=30)


@pytest.mark.parametrize(
    "meeting",
    [(store, kind) for store in SERVERS for kind in ("lock timeout", "no lock timeout")],
    ids=" ".join,
    indirect=True,
)
@pytest.mark.parametrize("wait", [0, 0.2, 0.6])
@pytest.mark.parametrize("row", ["there", "being made"])
def test_a_conflict_that_goes_on_is_told(
    meeting: tuple[Rival, str], name: str, wait: float, row: str
) -> None:
    """In time, though the servers' own limits are 50 s and none, and on the same session."""
    rival, kind = meeting
    session = one_value("ours", "id")
    limit = one_value("ours", LIMITS[rival.store])
    if row == "there":
        rival.begin(kind)
    else:
        rival.make_row_again()
    began = time.monotonic()
    with pytest.raises(LockBackendError) as info:
        lock(name, using="ours", wait=wait).acquire()
    took = time.monotonic() - began
    # At most two tries of 0.2 s each, past the wait; on MySQL, which counts whole seconds, of 1 s.
    assert took < wait + 2.0 + 5.0  # on a busy machine
    assert took >= wait
    assert info.value.name == name
    # MySQL takes no limit for a statement that writes: the connection is cut before it answers.
    had = "it hangs" if (rival.store, kind) == ("mysql", "no lock timeout") else "had the same row"
    assert had in str(info.value)
    rival.run("ROLLBACK")
    with lock(name, using="ours", wait=5):
        pass
    # MySQL is not waited for until its own limit: the connection is closed before.
    assert one_value("ours", "id") == session or rival.store == "mysql"
    assert one_value("ours", LIMITS[rival.store]) == limit


@pytest.mark.parametrize("store", [store for store in SERVERS if store != "postgresql"])
@pytest.mark.parametrize("kind", ["table", "row"])
def test_a_trigger_hides_no_grant(store: str, kind: str, name: str) -> None:
    """As the triggers by which a table is copied while it is in use: the token is read then."""
    backend = f"django_distlock.backends.{kind}.{kind.capitalize()}Backend"
    tokens = []
    with (
        database_alias("ours", database(store)),
        lock_alias("ours", BACKEND=backend, LOCATION="ours"),
    ):
        for _ in range(3):
            with lock(name, using="ours", wait=0) as lease:
                tokens.append(lease.fencing_token)
                assert lock(name, using="ours").locked()
        waited = None
        with lock(name, using="ours") as lease:
            waiter = Elsewhere(lambda: lock(name, using="ours", wait=20).acquire()).start()
            time.sleep(0.1)
            tokens.append(lease.fencing_token)
        waited = waiter.result()
        assert waited is not None
        tokens.append(waited.fencing_token)
        waited.release()
        assert not lock(name, using="ours").locked()
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 10**15
