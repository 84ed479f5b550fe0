"""Shared advisory locks: what shares a session, who joins it, and who is let in when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connections

from django_distlock import Lease, LockNotAcquiredError, UnsupportedOperationError, lock, locks
from django_distlock.backends.advisory.postgresql import lock_of
from django_distlock.core import clock
from tests.backends.rowlocks import on_servers, taken
from tests.backends.test_advisory import advisory, advisory_alias
from tests.backends.test_advisory_xact import POSTGRESQL, on_postgresql
from tests.backends.tools import Elsewhere, elsewhere, soon

LOCKS = """SELECT mode, granted FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
 AND (classid::bigint << 32) | objid::bigint = %s"""


@pytest.fixture
def alias(store: str) -> Iterator[str]:
    """The alias "advisory", whose sessions no other test has used."""
    with advisory_alias("advisory", store):
        yield "advisory"


def share(name: str, **options: object) -> Lease:
    """Share a lock, as another thread."""
    return elsewhere(lambda: taken(name, "advisory", shared=True, **options))


def at_server(store: str, name: str) -> list[tuple[str, bool]]:
    """Return how the server shows the lock of a name."""
    with connections[store].cursor() as cursor:
        cursor.execute(LOCKS, [lock_of(locks["advisory"].key(name))])
        return sorted(cursor.fetchall())


@on_postgresql
def test_sharers_of_a_process_have_one_share_at_the_server(
    store: str, alias: str, name: str
) -> None:
    leases = [share(name) for _ in range(30)]
    assert at_server(store, name) == [("ShareLock", True)]
    assert len({lease.fencing_token for lease in leases}) == 30
    last = leases.pop()
    for lease in leases:
        lease.release()
    assert at_server(store, name) == [("ShareLock", True)]
    assert elsewhere(lambda: lock(name, using=alias, wait=0).acquire()) is None
    last.release()
    assert at_server(store, name) == []
    taken(name, alias, wait=0).release()


@on_postgresql
def test_a_waiting_writer_keeps_readers_of_the_same_process_out(
    store: str, alias: str, name: str
) -> None:
    first = share(name)
    got = threading.Event()

    def write() -> None:
        with lock(name, using=alias, wait=60):
            got.set()

    writer = Elsewhere(write).start()
    assert soon(lambda: ("ExclusiveLock", False) in at_server(store, name))
    assert elsewhere(lambda: lock(name, using=alias, shared=True, wait=0).acquire()) is None
    assert not got.is_set()
    first.release()
    writer.result()
    share(name).release()


@on_postgresql
def test_readers_follow_a_writer_together(store: str, alias: str, name: str) -> None:
    writer = elsewhere(lambda: taken(name, alias))
    inside = threading.Barrier(3)

    def read() -> None:
        with lock(name, using=alias, shared=True, wait=60):
            inside.wait(30)

    readers = [Elsewhere(read).start() for _ in range(3)]
    assert soon(lambda: at_server(store, name).count(("ShareLock", False)) == 3)
    writer.release()
    for reader in readers:
        reader.result()
    assert at_server(store, name) == []


@on_postgresql
def test_other_ttls_and_waiters_share_by_other_sessions(store: str, alias: str, name: str) -> None:
    leases = [share(name, ttl=ttl) for ttl in (30, 60)]
    assert at_server(store, name) == [("ShareLock", True)] * 2
    assert {info.shared for info in locks[alias].holders(name)} == {True}
    for lease in leases:
        lease.release()
    assert at_server(store, name) == []


@on_postgresql
def test_a_share_that_runs_out_leaves_the_others(store: str, alias: str, name: str) -> None:
    kept, short = share(name, ttl=60), share(name, ttl=60, renew=False)
    session = advisory(alias)._sessions[short._hold.claim.owner]
    session.held[short._hold.claim.owner].until = clock.now()  # as after its ttl
    advisory(alias)._maintain_in(0.0)
    assert soon(lambda: short._hold.claim.owner not in session.held)
    kept.check()
    assert at_server(store, name) == [("ShareLock", True)]
    kept.release()
    assert at_server(store, name) == []


@on_postgresql
def test_no_claim_joins_a_share_whose_release_is_unanswered(
    store: str, alias: str, name: str
) -> None:
    """The server may have done it: then what is joined would be no share any more."""
    lease = share(name, ttl=60)
    session = advisory(alias)._sessions[lease._hold.claim.owner]
    session.freed[lease._hold.claim.owner] = True
    assert elsewhere(lambda: lock(name, using=alias, shared=True, wait=0, ttl=60).acquire()) is None
    del session.freed[lease._hold.claim.owner]
    lease.release()


@on_postgresql
def test_a_lost_session_is_the_loss_of_all_its_shares(store: str, alias: str, name: str) -> None:
    leases = [share(name, ttl=60) for _ in range(3)]
    number = advisory(alias)._sessions[leases[0]._hold.claim.owner].number
    with connections[store].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [number])
    assert soon(lambda: all(lease.lost for lease in leases))
    assert soon(lambda: not advisory(alias)._sessions)
    taken(name, alias, wait=10).release()


@on_postgresql
def test_a_writer_of_another_process_s_transaction_is_excluded(
    store: str, alias: str, name: str
) -> None:
    """Shared and exclusive, by the caller's transaction and by sessions."""
    sharing = lock(name, using=alias, shared=True, wait=0)
    with sharing.atomic(xact=True) as lease:
        assert lease.shared
        other = share(name)
        assert elsewhere(lambda: lock(name, using=alias, wait=0).acquire()) is None
        other.release()
    writer = elsewhere(lambda: taken(name, alias))
    with pytest.raises(LockNotAcquiredError), sharing.atomic(xact=True):
        pass
    writer.release()


@on_postgresql
def test_a_transaction_keeps_no_other_lock_waiting(store: str, alias: str, name: str) -> None:
    """It has raised the tokens to the clock, and so have all that come later."""
    with lock(name, using=alias, wait=0).atomic(xact=True) as first:
        for number in range(3):
            time.sleep(0.02)  # longer than the tokens are ahead of the clock
            lease = elsewhere(partial(taken, f"{name}{number}", alias, wait=0))
            assert lease.fencing_token > first.fencing_token
            lease.release()


@on_servers
def test_where_the_server_has_no_shared_locks(store: str, alias: str, name: str) -> None:
    if store in POSTGRESQL:
        assert locks[alias].supports_shared
        return
    with pytest.raises(UnsupportedOperationError, match="shared"):
        lock(name, using=alias, shared=True).acquire()
