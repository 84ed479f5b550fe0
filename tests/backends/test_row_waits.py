"""Waits in the server: its own limit on them, and how they are given up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from django_distlock import lock, locks
from django_distlock.backends.row import mariadb, mysql, postgresql
from django_distlock.backends.row.session import LockSession
from django_distlock.core.values import Refusal
from tests.backends.rowlocks import on_servers, row, row_alias, taken
from tests.backends.tools import Elsewhere, soon
from tests.claims import claim


@contextmanager
def short_waits(store: str) -> Iterator[None]:
    """Have the server end each wait after a moment."""
    if store == "mariadb":
        with mock.patch.object(mariadb, "LONGEST_WAIT", 1.0):
            yield
        return
    if store == "mysql":
        limits = mysql.LIMITS.replace("lock_wait_timeout = 300", "lock_wait_timeout = 1")
        assert limits != mysql.LIMITS
        with mock.patch.object(mysql.RowMySQL, "limits", limits):
            yield
        return
    told = [s.replace("lock_timeout = 300000", "lock_timeout = 300") for s in postgresql.SET_UP]
    assert told != list(postgresql.SET_UP)
    with mock.patch.object(postgresql, "SET_UP", told):
        yield


@on_servers
def test_a_wait_that_the_server_ends_begins_anew(store: str, name: str) -> None:
    """By its limit on waits, which is there for clients that have died: nobody is told of it."""
    alias = f"row-{store}"
    lease = taken(name, alias, ttl=20)
    sent: list[str] = []
    send = LockSession.send

    def note(session: LockSession, *given: Any) -> None:
        sent.append(session.owner)
        send(session, *given)

    with short_waits(store), row_alias("rows", store), mock.patch.object(LockSession, "send", note):
        waiter = Elsewhere(lambda: taken(name, "rows", wait=20)).start()
        assert soon(lambda: len(sent) >= 3, 15)
        assert len(set(sent)) == 1
        assert not waiter.done()
        lease.release()
        theirs = waiter.result()
        assert theirs.fencing_token > lease.fencing_token
        theirs.release()


@pytest.mark.parametrize("kind", ["row", "advisory"])
@on_servers
def test_a_wait_is_given_up_before_the_server_has_begun_it(
    store: str, kind: str, name: str
) -> None:
    """A cancellation that comes so early does nothing: it is repeated until the wait has ended."""
    alias = f"{kind}-{store}"
    lease = taken(name, alias, ttl=20)
    backend: Any = row(alias)
    dialect = backend.dialect() if kind == "row" else backend.dialect
    cancel, lost = type(dialect).cancel, 0

    def lose_one(self: Any, session: LockSession, *given: Any) -> None:
        nonlocal lost
        if lost:
            cancel(self, session, *given)
        lost += 1

    with mock.patch.object(type(dialect), "cancel", lose_one):
        assert (
            Elsewhere(lambda: lock(name, using=alias, wait=0.5).acquire()).start().result() is None
        )
    assert lost >= 2
    lease.release()
    taken(name, alias, wait=0).release()


@pytest.mark.parametrize("kind", ["row", "advisory"])
@on_servers
def test_who_was_granted_while_its_machine_slept(store: str, kind: str, name: str) -> None:
    """CLOCK_MONOTONIC stands still meanwhile, and the server's limit on silence does not."""
    alias = f"{kind}-{store}"
    backend, holder = locks[alias], taken(name, alias, ttl=20)
    waiting = claim(backend, name, ttl=1.5)._replace(waits=True)
    with mock.patch.object(time, "monotonic", return_value=time.monotonic()):
        assert isinstance(backend.try_acquire(waiting, 5.0), Refusal)
        holder.release()
        other = Elsewhere(lambda: taken(name, alias, ttl=20, wait=20)).start().result()
        assert isinstance(backend.try_acquire(waiting, 0.0), Refusal)
    other.release()
    backend.release(waiting)
