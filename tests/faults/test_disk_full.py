"""No room on the disk: a clear error, nothing half granted, and what is held can be freed.

SQLite's file is limited, which fails as a full disk does, and so are a table and all of InnoDB on
MariaDB and the files that the session on PostgreSQL may write. Only root could fill a real disk of
a server: for its very error there is a trigger that raises it.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.core.management import call_command
from django.db import OperationalError, connections

from django_distlock import LockBackendError, lock
from tests.backends.outages import taken
from tests.backends.tools import SERVERS, elsewhere, one_value
from tests.faults.disks import full
from tests.faults.places import Place, opened
from tests.servers import DATABASES

REMEDY = r"The disk of DATABASES\['own'\], or its quota, is full: make room"


def fill(name: str, said: str = REMEDY) -> str:
    """Take locks until there is no room for one more; return the name of that."""
    last = ""

    def take_all() -> None:
        nonlocal last
        for number in range(500):
            last = f"{name}:{number}:{'x' * 200}"
            taken(last, ttl=60, renew=False)

    with pytest.raises(LockBackendError, match=said) as info:
        take_all()
    assert (info.value.name, info.value.alias) == (last, "own")
    assert not lock(last, using="own").locked()
    return last


def test_a_file_that_cannot_grow(filed: Place, name: str) -> None:
    lease = taken(name, ttl=60, renew=False)
    pages = one_value("own", "PRAGMA page_count")
    assert one_value("own", f"PRAGMA max_page_count = {pages}") == pages
    last = fill(name)
    lease.renew()
    lease.release()
    assert not lock(name, using="own").locked()
    connections["own"].close()  # there is room again
    with lock(last, using="own", wait=0):
        pass


@pytest.mark.parametrize(
    "served", [store for store in SERVERS if store == "mariadb"], indirect=True
)
def test_a_table_that_cannot_grow(served: Place, name: str) -> None:
    """Of the engines of MariaDB this one's tables can be limited to 64 KiB."""
    assert served.server
    lease = taken(name, ttl=60, renew=False)
    alter = "ALTER TABLE distlock_lock ENGINE"
    served.server.execute("SET GLOBAL myisam_data_pointer_size = 2")
    served.execute(f"{alter} = MyISAM, MAX_ROWS = 1000, AVG_ROW_LENGTH = 10")
    try:
        last = fill(name)
        lease.renew()
        lease.release()
        assert not lock(name, using="own").locked()
    finally:
        served.server.execute("SET GLOBAL myisam_data_pointer_size = DEFAULT")
        served.execute("TRUNCATE TABLE distlock_lock")
        served.execute(f"{alter} = InnoDB, MAX_ROWS = 0, AVG_ROW_LENGTH = 0")
    with lock(last, using="own", wait=0):
        pass


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "mariadb"])
def test_an_innodb_that_cannot_grow(store: str, name: str) -> None:
    """Its tables in one file, with the undo log, and no room but what it began with."""
    files = "--innodb-data-file-path=ibdata1:12M"
    together = "--innodb-file-per-table=OFF"
    with DATABASES[store](options=[files, together]) as server:
        server.create_database("own")
        with opened(store, server.settings("own"), server) as place:
            call_command("migrate", database="own", verbosity=0)
            place.execute("CREATE TABLE filler (a VARCHAR(255))")
            lease = taken(name, ttl=60, renew=False)
            with suppress(OperationalError):
                for _ in range(300):
                    place.execute("INSERT INTO filler SELECT repeat('x', 255) FROM seq_1_to_200")
            last = fill(name)
            with suppress(LockBackendError):  # even that may need room, in the undo log
                lease.renew()
            lease.check()
            assert lock(name, using="own").locked()
            server.options = [f"{files}:autoextend", together]
            server.restart()
            lease.release()
            with lock(name, using="own", wait=0), lock(last, using="own", wait=0):
                pass


@pytest.mark.parametrize(
    "served", [store for store in SERVERS if store == "postgresql"], indirect=True
)
def test_a_file_of_a_server_that_cannot_grow(served: Place, name: str) -> None:
    """The kernel lets the session's process write no file past 16 MiB, the size of its log's."""
    lease = taken(name, ttl=60, renew=False)
    served.execute(
        "INSERT INTO distlock_lock (digest, name, owner, token, acquired, expires, note) "
        "SELECT md5(n::text), 'filler', '', 0, 0, 0, "
        "(SELECT string_agg(md5((n * 12 + m)::text), '') FROM generate_series(1, 12) m) "
        "FROM generate_series(1, 50000) n"
    )
    process = int(one_value("own", "SELECT pg_backend_pid()"))
    assert served.server
    try:
        served.server.run("prlimit", f"--pid={process}", f"--fsize={16 << 20}")
        last = fill(name, "could not extend file .* Check free disk space")
        lease.renew()
        lease.release()
        assert not lock(name, using="own").locked()
    finally:
        connections["own"].close()
        served.execute("TRUNCATE TABLE distlock_lock")
    with lock(last, using="own", wait=0):
        pass


def test_no_new_grant_but_what_is_held_is_renewed_and_freed(served: Place, name: str) -> None:
    lease = taken(name, ttl=60, renew=False)
    with full(served.execute, served.store, "INSERT"):
        with pytest.raises(LockBackendError, match=REMEDY) as info:
            taken(f"{name}:2", wait=0.2)
        assert (info.value.name, info.value.alias) == (f"{name}:2", "own")
        assert not lock(f"{name}:2", using="own").locked()
        lease.renew()
        lease.release()
    with lock(name, using="own", wait=0), lock(f"{name}:2", using="own", wait=0):
        pass


def test_a_release_that_fails_is_told_and_can_be_repeated(served: Place, name: str) -> None:
    lease = taken(name, ttl=60, renew=False)
    with full(served.execute, served.store, "UPDATE"):
        for verb in (lease.renew, lease.release):
            with pytest.raises(LockBackendError, match=REMEDY):
                verb()
        lease.check()
        assert elsewhere(lock(name, using="own", wait=0).locked)
    lease.release()
    assert not lock(name, using="own").locked()
