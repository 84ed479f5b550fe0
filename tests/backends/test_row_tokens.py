"""Row locks: their tokens, and rows in the hands of others."""

from __future__ import annotations

import time
from unittest import mock

import pytest
from django.db import connections

from django_distlock import (
    LeaseLostError,
    lock,
    locks,
)
from django_distlock.core.values import Claim, Grant, Refusal
from django_distlock.models import RowLock, RowToken
from tests.backends.rowlocks import (
    CLOCK,
    on_servers,
    refused,
    row,
    row_alias,
    taken,
    waits,
)
from tests.backends.tools import (
    Elsewhere,
    one_value,
    soon,
)
from tests.servers import ByStore


@on_servers
def test_a_waiters_token_is_drawn_after_its_wait(store: str, name: str) -> None:
    """In the statement that waits it would be as old as the beginning of the wait."""
    alias = f"row-{store}"
    lease = taken(name, alias)
    waiter = Elsewhere(lambda: taken(name, alias, wait=20)).start()
    assert soon(lambda: waits(name, alias))
    time.sleep(0.2)
    late = one_value(store, CLOCK[store])
    lease.release()
    theirs = waiter.result()
    assert theirs.fencing_token > late
    theirs.release()


@on_servers
@pytest.mark.parametrize(("ttl", "anew"), [(2.0, True), (100.0, False)])
def test_a_waiters_lease_ends_before_the_servers_limit(
    store: str, name: str, ttl: float, anew: bool
) -> None:
    """The limit runs from the grant, of which the waiter learns 0.2 s later."""
    backend = row(f"row-{store}")
    lease = taken(name, f"row-{store}")
    claim = Claim(name, backend.key(name), "later", ttl)
    asked = time.monotonic()
    assert isinstance(backend.try_acquire(claim, 1.0), Refusal)
    lease.release()
    time.sleep(0.2)
    kind = type(backend.dialect())
    with mock.patch.object(kind, "renew", autospec=True, side_effect=kind.renew) as renew:
        answer = backend.try_acquire(claim, 1.0)
    passed = time.monotonic() - asked
    assert isinstance(answer, Grant)
    assert renew.called is anew
    if anew:
        assert answer.valid_for == ttl
    else:
        assert ttl - passed <= answer.valid_for <= ttl - 0.2
    assert backend.release(claim)


@on_servers
def test_tokens_rise_when_the_holders_are_killed(store: str, name: str) -> None:
    """What they wrote is rolled back."""
    alias = f"row-{store}"
    tokens = []
    with row_alias("killer", store):
        for _ in range(3):
            lease = taken(name, alias, renew=False)
            tokens.append(lease.fencing_token)
            assert locks["killer"].force_release(name).fencing_token == tokens[-1]
            with pytest.raises(LeaseLostError):
                lease.renew()
    assert tokens == sorted(set(tokens))


@on_servers
def test_a_token_ahead_of_the_clock_is_topped(store: str, name: str) -> None:
    """As after the clock was set back, or a hand in the table."""
    alias = f"row-{store}"
    taken(name, alias).release()
    ahead = time.time_ns() // 1000 + 10**9
    model = ByStore(postgresql=RowToken, mariadb=RowLock)[store]
    model._default_manager.using(store).filter(digest=row(alias).key(name)).update(token=ahead)
    with lock(name, using=alias) as lease:
        assert lease.fencing_token == ahead + 1


@on_servers
def test_a_row_deleted_by_hand_is_made_again(store: str, name: str) -> None:
    alias = f"row-{store}"
    with lock(name, using=alias) as lease:
        token = lease.fencing_token
    for wait in (0, 5):
        RowLock.objects.using(store).filter(digest=row(alias).key(name)).delete()
        with lock(name, using=alias, wait=wait) as lease:
            assert lease.fencing_token > token
            assert refused(name, alias)


@on_servers
def test_a_row_deleted_under_a_waiter_is_made_again(store: str, name: str) -> None:
    """The one who deletes it has it locked; then there is nothing to be had."""
    alias = f"row-{store}"
    taken(name, alias).release()
    raw = connections[store].copy()
    raw.inc_thread_sharing()
    with raw.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM distlock_row WHERE digest = %s", [row(alias).key(name)])
        waiter = Elsewhere(lambda: taken(name, alias, wait=20)).start()
        assert soon(lambda: waits(name, alias))
        time.sleep(0.1)
        assert not waiter.done()
        late = one_value(store, CLOCK[store])
        cursor.execute("COMMIT")
    raw.close()
    lease = waiter.result()
    assert lease.fencing_token > late
    assert refused(name, alias)
    lease.release()


@on_servers
def test_a_row_locked_by_hand_is_a_held_lock(store: str, name: str) -> None:
    alias = f"row-{store}"
    taken(name, alias).release()
    raw = connections[store].copy()
    with raw.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "SELECT 1 FROM distlock_row WHERE digest = %s FOR UPDATE", [row(alias).key(name)]
        )
        assert lock(name, using=alias, wait=0).acquire() is None
        assert lock(name, using=alias, wait=0.2).acquire() is None
        cursor.execute("COMMIT")
    raw.close()
    taken(name, alias).release()
