"""What the tests of the table backend share: aliases made for one test, threads, a data table."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_distlock import LockBackendError, lock, locks
from django_distlock.backends.table import TableBackend
from django_distlock.core.worker import close_connections
from tests.conftest import SERVERS as STARTED
from tests.servers import DATABASES, ByStore, chosen

T = TypeVar("T")

TABLE = "django_distlock.backends.table.TableBackend"
LOCMEM = "django_distlock.backends.locmem.LocMemBackend"

SERVERS = [store for store in DATABASES if store in chosen()]
"""The database servers of this run."""
STORES = [store for store in ("sqlite", *DATABASES) if store in chosen()]
"""The aliases of DATABASES of this run on which a row is locked by what another connection does."""

LIMIT = 30.0  # seconds after which a test that should have ended long ago is broken


@contextmanager
def lock_alias(alias: str, **conf: Any) -> Iterator[str]:
    """Add an alias to DISTLOCKS for a while, or put one in the place of another."""
    before = locks.settings.get(alias)
    with contextlib.suppress(KeyError):
        del locks[alias]
    locks.settings[alias] = {"BACKEND": TABLE, **conf}
    try:
        yield alias
    finally:
        with contextlib.suppress(KeyError):
            del locks[alias]
        del locks.settings[alias]
        if before is not None:
            locks.settings[alias] = before


@contextmanager
def database_alias(alias: str, settings: dict[str, Any]) -> Iterator[BaseDatabaseWrapper]:
    """Add an alias to DATABASES for a while; closed for this thread at the end."""
    configured = connections.configure_settings({"default": {}, alias: settings})
    connections.settings[alias] = configured[alias]
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def table(alias: str) -> TableBackend:
    """Return the backend of an alias that is a lock table."""
    return cast("TableBackend", locks[alias])


class Undo(Exception):
    """Raised to roll a transaction back."""


class undone:
    """Let a block end by `Undo`, and by nothing else."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        assert error is not None, "the block was not undone"
        return isinstance(error, Undo)


class Elsewhere(Generic[T]):
    """Work in a thread of its own, whose database connections end with it.

    A context manager: at the end of the block the thread has ended, and what it raised is raised.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            result = self._work()
        except BaseException as error:
            self._answer.put((None, error))
        else:
            self._answer.put((result, None))
        finally:
            close_connections()

    def result(self) -> T:
        """Wait for the thread, and return or raise what its work did."""
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "the thread hangs"
        result, error = answer = self._answer.get_nowait()
        self._answer.put(answer)
        if error is not None:
            raise error
        return cast("T", result)

    def done(self) -> bool:
        """Tell whether the work is over."""
        return not self._answer.empty()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.result()


def elsewhere(work: Callable[[], T]) -> T:
    """Do ``work`` in a thread of its own, with connections of its own, and return its result."""
    return Elsewhere(work).start().result()


def follow(name: str, alias: str, cell: Cell) -> Elsewhere[int]:
    """Start a thread that waits for the lock and then reads the cell; it must not get it now."""
    waiting = threading.Event()

    def look() -> int:
        waiting.set()
        with lock(name, using=alias, wait=20):
            return cell.read()

    waiter = Elsewhere(look).start()
    assert waiting.wait(LIMIT)
    stays(waiter)
    return waiter


def stays(waiter: Elsewhere[Any]) -> None:
    """Give a waiter, who looks at least each 0.1 s, the time to be granted what it must not be."""
    time.sleep(0.25)
    assert not waiter.done(), "the waiter got the lock before the transaction had ended"


def is_free(name: str, using: str) -> bool:
    """Tell whether another thread gets the lock at once; a store too busy to say is a no."""

    def attempt() -> bool:
        said = ""
        try:
            lease = lock(name, using=using, wait=0).acquire()
        except LockBackendError as error:
            lease, said = None, str(error)
        assert not said or "is locked" in said, said
        if lease is not None:
            lease.release()
        return lease is not None

    return elsewhere(attempt)


class Cell:
    """One number in a table of the program's own, as the data that a lock guards."""

    def __init__(self, database: str, name: str) -> None:
        self.database = database
        self.name = name

    @classmethod
    def new(cls, database: str, name: str) -> Cell:
        """Make a cell that holds 0."""
        cell = cls(database, name[-200:])
        if "cell" not in connections[database].introspection.table_names():
            cell.execute("CREATE TABLE cell (name varchar(200) PRIMARY KEY, value integer)")
        cell.execute("INSERT INTO cell (name, value) VALUES (%s, 0)", [cell.name])
        return cell

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with connections[self.database].cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def write(self, value: int) -> None:
        """Set the number, in whatever transaction this thread has open."""
        self.execute("UPDATE cell SET value = %s WHERE name = %s", [value, self.name])

    def read(self) -> int:
        """Return the number as this thread sees it."""
        return int(self.execute("SELECT value FROM cell WHERE name = %s", [self.name])[0][0])


def make_role(database: str, role: str) -> dict[str, str]:
    """Make a role that may connect and no more; return the settings by which to connect as it."""
    postgresql = connections[database].vendor == "postgresql"
    said = f"ROLE {role} LOGIN PASSWORD" if postgresql else f"USER {role}@'%%' IDENTIFIED BY"
    with connections[database].cursor() as cursor:
        cursor.execute(f"CREATE {said} 'secret'", [])
    return {"USER": role, "PASSWORD": "secret"}


def weak_role(store: str, role: str) -> dict[str, Any]:
    """Make a role that may read and write the tests' database and no more; return its settings."""
    settings = dict(connections.settings[store])
    with connections[store].cursor() as cursor:
        if store == "postgresql":
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            if cursor.fetchone():  # of another test, which may have granted it more
                cursor.execute(f"DROP OWNED BY {role}")
                cursor.execute(f"DROP ROLE {role}")
            login = make_role(store, role)
            cursor.execute(f"GRANT pg_read_all_data, pg_write_all_data TO {role}")
        else:
            cursor.execute(f"DROP USER IF EXISTS {role}@'%%'", [])
            login = make_role(store, role)
            cursor.execute(f"GRANT ALL ON {settings['NAME']}.* TO {role}@'%%'", [])
    return settings | login


def unreachable(store: str) -> dict[str, Any]:
    """Return the settings of a database that cannot be connected to."""
    settings = {key: connections.settings[store][key] for key in ("ENGINE", "OPTIONS")}
    if store == "sqlite":
        return settings | {"NAME": "/dev/null/no/such/folder"}
    return settings | {"NAME": "nowhere", "HOST": "127.0.0.1", "PORT": "1"}


def unreachable_is_told(store: str, database: str) -> str:
    """Return the remedy for such a database."""
    if store == "sqlite":
        return f"Look at the database server of DATABASES[{database!r}] and its log"
    return f"Look at HOST, PORT and OPTIONS of DATABASES[{database!r}], and whether the server runs"


def one_value(database: str, what: str) -> Any:
    """Return the id of this thread's session on the server, or the first value of a query."""
    connection = connections[database]
    ids = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}
    with connection.cursor() as cursor:
        cursor.execute(ids[connection.vendor] if what == "id" else what)
        return cursor.fetchone()[0]


def sessions(store: str, database: str = "quiet") -> set[int]:
    """Return the ids of the clients' sessions in a database of a server."""
    sql = ByStore(
        {
            "postgresql": "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
            f"AND datname = '{database}'",
            "mariadb": f"SELECT id FROM information_schema.processlist WHERE db = '{database}'",
        }
    )
    return {int(line) for line in STARTED[store].execute(sql[store]).split()}


def opened(gate: threading.Event) -> None:
    """Keep a background thread busy until the gate opens."""
    assert gate.wait(LIMIT)


def soon(condition: Callable[[], bool], limit: float = 15.0) -> bool:
    """Wait until a condition holds; tell whether it does.

    Not for as long as the default ttl, after which what was not freed would seem to be.
    """
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
