"""A database that may only be read, as a replica: said so, and the remedy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections

from django_distlock import LeaseLostError, LockBackendError, lock, locks
from tests.backends.outages import loss_told, taken
from tests.backends.tools import SERVERS, database_alias, elsewhere, lock_alias, soon
from tests.faults.places import Place
from tests.servers.postgresql import PostgreSQL

REMEDY = r"DATABASES\['own'\] is read-only, a replica perhaps: .* name that in LOCATION"


@contextmanager
def read_only(place: Place) -> Iterator[None]:
    """Let the place be read-only for all but its administrator."""
    if place.server is None:
        with connections["own"].cursor() as cursor:
            cursor.execute("PRAGMA query_only = ON")
            yield
            cursor.execute("PRAGMA query_only = OFF")
        return
    if place.store == "postgresql":
        # What a session on a standby has, too; it counts for new ones.
        begin = "ALTER DATABASE own SET default_transaction_read_only = on"
        end = "ALTER DATABASE own RESET default_transaction_read_only"
    else:
        begin, end = "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"
    place.server.execute(begin)
    connections["own"].close()
    try:
        yield
    finally:
        place.server.execute(end)
        connections["own"].close()


def test_nothing_is_granted_and_the_primary_is_named(place: Place, name: str) -> None:
    holder = elsewhere(lambda: taken(name, ttl=60, renew=False))
    with read_only(place):
        for wait in (0, 0.3):
            with pytest.raises(LockBackendError, match=REMEDY) as info:
                lock(f"{name}:2", using="own", wait=wait).acquire()
            assert (info.value.name, info.value.alias) == (f"{name}:2", "own")
        # To look is no problem.
        assert lock(name, using="own").locked()
        assert [info.name for info in locks["own"].held(name)] == [name]
        told = "distlock.E003" in [each.id for each in locks["own"].check_deploy()]
        assert told == (place.server is not None)
    assert "distlock.E003" not in [each.id for each in locks["own"].check_deploy()]
    holder.release()


def test_what_is_held_is_kept_until_it_can_be_written_again(place: Place, name: str) -> None:
    lease = taken(name, ttl=60, renew=False)
    with read_only(place):
        for verb in (lease.renew, lease.release):
            with pytest.raises(LockBackendError, match=REMEDY):
                verb()
        lease.check()
    lease.release()
    assert not lock(name, using="own").locked()


def test_a_primary_that_becomes_a_replica_under_the_watchdog(served: Place, name: str) -> None:
    """The loss is noticed when the time is up, by the holder's own clock."""
    with loss_told() as told:
        lease = taken(name, ttl=1.5)
        began = time.monotonic()
        with read_only(served):
            assert told.wait(15)
            assert 0.5 < time.monotonic() - began < 6
            with pytest.raises(LeaseLostError):
                lease.check()
        assert soon(lambda: not lock(name, using="own").locked())
        with lock(name, using="own") as later:
            assert later.fencing_token > lease.fencing_token


def test_a_file_opened_for_reading_only(filed: Place, name: str) -> None:
    holder = elsewhere(lambda: taken(name, ttl=60, renew=False))
    settings = filed.settings | {"NAME": f"file:{filed.settings['NAME']}?mode=ro"}
    with database_alias("reader", settings), lock_alias("reader", LOCATION="reader"):
        for wait in (0, 0.3):
            with pytest.raises(LockBackendError, match=REMEDY.replace("own", "reader")):
                lock(f"{name}:2", using="reader", wait=wait).acquire()
        assert lock(name, using="reader").locked()
    holder.release()


@pytest.mark.parametrize(
    "served", [store for store in SERVERS if store == "postgresql"], indirect=True
)
def test_a_standby_and_its_promotion(served: Place, name: str) -> None:
    """A lock moves with its table: it is held on the standby, and its holder's when promoted."""
    assert isinstance(served.server, PostgreSQL)
    lease = taken(name, ttl=60, renew=False)
    served.server.kill()
    served.server.write("data/standby.signal", "")
    served.server.start()
    for work in (lease.renew, lease.release, lock(f"{name}:2", using="own", wait=0).acquire):
        with pytest.raises(LockBackendError, match=REMEDY):
            work()
    assert lock(name, using="own").locked()
    assert "distlock.E003" in [each.id for each in locks["own"].check_deploy()]
    assert served.server.execute("SELECT pg_promote()") == "t"
    lease.renew()
    assert elsewhere(lock(name, using="own", wait=0).acquire) is None
    lease.release()
    with lock(name, using="own") as later:
        assert later.fencing_token > lease.fencing_token
