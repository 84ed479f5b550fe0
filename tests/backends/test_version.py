"""Compare-and-swap: who loses it, by what, and how long it waits for others' transactions.

A race is made certain by doing what the others do between the look and the write.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

import pytest
from django.db import connections, transaction

from django_distlock import LeaseLostError, LockBackendError, lock, locks
from django_distlock.backends.table.portable import PortableStatements
from django_distlock.backends.version import VersionBackend, VersionStatements
from django_distlock.core.values import Claim, Grant, Refusal
from django_distlock.models import LockRow
from tests.backends.tools import SERVERS, database_alias, elsewhere, lock_alias

VERSION = "django_distlock.backends.version.VersionBackend"


def version(alias: str) -> VersionBackend:
    """Return the backend of an alias."""
    return cast("VersionBackend", locks[alias])


@pytest.fixture
def backend(store: str) -> VersionBackend:
    """The technique on each database of this run."""
    return version(f"version-{store}")


@contextmanager
def between(backend: VersionBackend, act: Callable[[], Any]) -> Iterator[None]:
    """Do something after the next look, before the write that goes by it."""
    statements = backend.statements()
    assert isinstance(statements, VersionStatements)
    look = statements.look

    def looked(*args: Any) -> Any:
        seen = look(*args)
        patch.stop()
        act()
        return seen

    patch = mock.patch.object(statements, "look", looked)
    patch.start()
    try:
        yield
    finally:
        mock.patch.stopall()


def claim(backend: VersionBackend, name: str) -> Claim:
    """Return a claim by a new owner."""
    return Claim(name, backend.key(name), secrets.token_hex(16), 20.0)


def granted(backend: VersionBackend, asked: Claim) -> Grant:
    """Ask once, from another thread, and be granted."""
    answer = elsewhere(lambda: backend.try_acquire(asked, 1.0))
    assert isinstance(answer, Grant)
    return answer


def test_its_own_text_where_there_is_one(store: str) -> None:
    assert isinstance(version(f"version-{store}").statements(), VersionStatements)
    portable = {"BACKEND": VERSION, "LOCATION": store, "OPTIONS": {"SQL": "portable"}}
    with lock_alias("forced", **portable) as alias:
        assert isinstance(version(alias).statements(), PortableStatements)


def test_it_shares_its_locks_with_the_table_backend(store: str, name: str) -> None:
    """As when a program is changed from one to the other while it runs."""
    shared = {"LOCATION": store, "PREFIX": "shared"}
    tokens = []
    with lock_alias("table", **shared), lock_alias("version", **shared, BACKEND=VERSION):
        for ours, theirs in [("table", "version"), ("version", "table")] * 2:
            with lock(name, using=ours) as lease:
                tokens.append(lease.fencing_token)
                assert elsewhere(lock(name, using=theirs, wait=0).acquire) is None
                assert [info.name for info in locks[theirs].held(name)] == [name]
                lease.renew()
    assert tokens == sorted(set(tokens))


def test_who_was_faster_has_the_lock(backend: VersionBackend, name: str) -> None:
    """The version has changed since the look; so has the holder."""
    first, second = claim(backend, name), claim(backend, name)
    granted(backend, first)
    backend.release(first)
    with between(backend, lambda: granted(backend, second)):
        answer = backend.try_acquire(first, 1.0)
    assert isinstance(answer, Refusal)
    assert answer.remaining
    assert backend.renew(second)
    assert backend.release(second)


def test_who_was_faster_and_has_gone_leaves_a_higher_token(
    backend: VersionBackend, name: str
) -> None:
    """The row looks as free as before, but its version has changed."""
    first, second = claim(backend, name), claim(backend, name)
    tokens = []

    def come_and_go() -> None:
        tokens.append(granted(backend, second).fencing_token)
        assert elsewhere(lambda: backend.release(second))

    granted(backend, first)
    backend.release(first)
    with between(backend, come_and_go):
        answer = backend.try_acquire(first, 1.0)
    assert isinstance(answer, Grant)
    assert answer.fencing_token > tokens[0]
    backend.release(first)


def test_a_renewal_between_look_and_write_is_no_free_lock(
    backend: VersionBackend, name: str
) -> None:
    """The expiry is judged again: a renewal does not change the version."""
    holder, other = claim(backend, name), claim(backend, name)
    granted(backend, holder)
    rows = LockRow.objects.using(backend.database).filter(digest=holder.key)
    (expires,) = rows.values_list("expires", flat=True)
    rows.update(expires=1)  # run out, as the look sees it

    def renewed() -> None:
        rows.update(expires=expires)

    with between(backend, lambda: elsewhere(renewed)):
        assert isinstance(backend.try_acquire(other, 1.0), Refusal)
    assert backend.renew(holder)
    assert backend.release(holder)


def test_a_version_changed_by_hand_is_a_conflict_and_no_lower_token(
    backend: VersionBackend, name: str
) -> None:
    """Raw SQL set the version ahead of the clock: the next one is above it."""
    asked = claim(backend, name)
    granted(backend, asked)
    backend.release(asked)
    ahead = time.time_ns() // 1000 + 10**9
    rows = LockRow.objects.using(backend.database).filter(digest=asked.key)
    with between(backend, lambda: elsewhere(lambda: rows.update(token=ahead))):
        answer = backend.try_acquire(asked, 1.0)
    assert isinstance(answer, Grant)
    assert answer.fencing_token == ahead + 1
    backend.release(asked)


def test_a_row_deleted_by_hand_is_a_lost_lease(backend: VersionBackend, name: str) -> None:
    lease = lock(name, using=backend.alias, renew=False).acquire()
    assert lease
    token = lease.fencing_token
    LockRow.objects.using(backend.database).filter(digest=backend.key(name)).delete()
    with pytest.raises(LeaseLostError):
        lease.renew()
    with lock(name, using=backend.alias) as again:
        assert again.fencing_token > token


@pytest.mark.parametrize("store", SERVERS)
@pytest.mark.parametrize("new", [False, True], ids=["known", "new"])
def test_a_row_locked_by_a_transaction_holds_nobody_up(store: str, name: str, new: bool) -> None:
    """The server waits no longer for it than the wait allows, and keeps the connection."""
    backend = version(f"version-{store}")
    asked = claim(backend, name)
    if not new:
        granted(backend, asked)
        backend.release(asked)
    rows = LockRow.objects.using("rival")
    connections[store].ensure_connection()
    session = connections[store].connection
    with database_alias("rival", dict(connections.settings[store])):
        with transaction.atomic(using="rival"):
            if new:
                rows.create(digest=asked.key, name=name)
            else:
                assert rows.filter(digest=asked.key).update(acquired=1) == 1
            began = time.monotonic()
            with pytest.raises(LockBackendError):
                lock(name, using=backend.alias, wait=0).acquire()
            assert time.monotonic() - began < 4.5
            transaction.set_rollback(True, using="rival")
        with lock(name, using=backend.alias, wait=5) as lease:
            assert lease.fencing_token > 0
    # MySQL is not waited for until its own limit: the connection is closed before.
    assert connections[store].connection is session or store == "mysql"
    with connections[store].cursor() as cursor:
        limit = {
            "postgresql": "SHOW lock_timeout",
            "mariadb": "SELECT @@max_statement_time",
            "mysql": "SELECT @@max_execution_time",
        }
        cursor.execute(limit[store])
        assert float(cursor.fetchone()[0]) == 0


@pytest.mark.parametrize("wait", [0, 0.2])
def test_a_loser_writes_nothing(backend: VersionBackend, name: str, wait: float) -> None:
    """Losing is a look and nothing else."""
    sent: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        sent.append(sql)
        return execute(sql, *rest)

    with lock(name, using=backend.alias):

        def lose() -> None:
            with connections[backend.database].execute_wrapper(note):
                assert lock(name, using=backend.alias, wait=wait).acquire() is None

        elsewhere(lose)
    looks = [sql for sql in sent if "distlock_lock" in sql]
    assert looks
    assert all(sql.startswith("SELECT") for sql in looks)
