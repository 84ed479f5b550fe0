"""A replica takes the primary's place: advisory locks are lost, those of the table are not.

Of all of them tokens rise. MariaDB and MySQL write their binary log here, by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.core.management import call_command

from django_distlock import Lease, LeaseLostError, LockBackendError, lock
from django_distlock.models import AdvisoryHolder, LockRow
from tests.backends.rowlocks import taken
from tests.backends.test_advisory import advisory_alias
from tests.backends.tools import SERVERS, Elsewhere, database_alias, lock_alias, soon
from tests.proxy import Proxy
from tests.servers import DATABASES, ByStore, DatabaseServer
from tests.servers.postgresql import PostgreSQL

# The replica's number is smaller, and with it what UUID_SHORT() gives there.
LOGGED = {
    "mariadb": ("--log-bin=bin", "--binlog-format=ROW"),
    "mysql": ("--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"),
}
FOLLOW = {
    "mariadb": "CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='{user}', "
    "MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos; START SLAVE",
    "mysql": "CHANGE REPLICATION SOURCE TO SOURCE_HOST='{host}', SOURCE_PORT={port}, "
    "SOURCE_USER='{user}', SOURCE_PASSWORD='{password}', SOURCE_AUTO_POSITION=1, "
    "GET_SOURCE_PUBLIC_KEY=1; START REPLICA",
}
PROMOTE = {
    "postgresql": "SELECT pg_promote()",
    "mariadb": "STOP SLAVE; RESET SLAVE ALL",
    "mysql": "STOP REPLICA; RESET REPLICA ALL",
}
DATABASES_OF = ByStore(postgresql="SELECT datname FROM pg_database", mariadb="SHOW DATABASES")


class Standby(PostgreSQL):
    """A copy of a PostgreSQL that follows it."""

    def __init__(self, primary: PostgreSQL) -> None:
        super().__init__()
        self._primary = primary

    def prepare(self) -> None:
        """Copy the primary as it is."""
        of = [f"--host={self._primary.host}", f"--port={self._primary.port}"]
        words = [f"--pgdata={self.data}", *of, f"--username={self.user}", "--no-sync"]
        self.run("pg_basebackup", *words, "--write-recovery-conf", "--checkpoint=fast")


@contextmanager
def pair(store: str) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """Start a primary and its replica."""
    if store == "postgresql":
        with PostgreSQL() as primary, Standby(primary) as replica:
            yield primary, replica
        return
    kind: Any = DATABASES[store]
    replica = kind(options=[*LOGGED[store], "--server-id=1"])
    with kind(options=[*LOGGED[store], "--server-id=200"]) as primary:
        replica.password = primary.password
        facts = {key: getattr(primary, key) for key in ("host", "port", "user", "password")}
        with replica:
            replica.execute(FOLLOW[store].format(**facts))
            yield primary, replica


@pytest.mark.parametrize("store", SERVERS)
def test_a_replica_takes_over(store: str, name: str) -> None:
    with (
        pair(store) as (primary, replica),
        Proxy(primary.port) as address,
        database_alias("own", primary.create_database("own") | {"PORT": str(address.port)}),
        advisory_alias("held", "own", OPTIONS={"COMMAND_TIMEOUT": 1.0}),
        lock_alias("kept", LOCATION="own"),
    ):
        call_command("migrate", database="own", verbosity=0)
        assert soon(lambda: _has_followed(replica, store), 60)
        kept = taken(name, "kept", ttl=600, renew=False)
        assert soon(lambda: _has_row(replica, kept.fencing_token), 60)
        lost: list[Lease] = []
        lease = taken(name, "held")
        lease.on_lost(lost.append)
        tokens = [lease.fencing_token]
        for _ in range(200):
            with taken(f"{name}:other", "held") as other:
                tokens.append(other.fencing_token)
        waiter = Elsewhere(lambda: taken(name, "held", wait=5)).start()
        primary.kill()
        replica.execute(PROMOTE[store])
        address.target = (replica.host, replica.port)
        assert soon(lambda: lost != [], 20)
        with pytest.raises(LeaseLostError):
            lease.release()
        with suppress(LockBackendError):  # it had asked the server that died
            waiter.result().release()
        assert soon(lambda: _may_be_had(name, tokens), 20)
        assert lock(name, using="kept").locked()
        kept.release()
        with lock(name, using="kept", wait=5) as again:
            assert again.fencing_token > kept.fencing_token


def _has_followed(replica: DatabaseServer, store: str) -> bool:
    found = replica.execute(DATABASES_OF[store]).split()
    if "own" not in found:
        return False
    with database_alias("replica", replica.settings("own")) as connection:
        return AdvisoryHolder._meta.db_table in connection.introspection.table_names()


def _has_row(replica: DatabaseServer, token: int) -> bool:
    with database_alias("replica", replica.settings("own")):
        return LockRow.objects.using("replica").filter(token=token).exists()


def _may_be_had(name: str, tokens: list[int]) -> bool:
    try:
        with taken(name, "held") as lease, taken(f"{name}:other", "held") as other:
            assert min(lease.fencing_token, other.fencing_token) > max(tokens)
    except LockBackendError:
        return False
    return True
