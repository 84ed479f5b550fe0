"""The contract suite, for every backend and database of this run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import ClassVar

import pytest
import uvloop
from django.conf import settings

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.redis import RedisBackend
from django_distlock.testing import override_locks
from django_distlock.testing.contract import LockBackendContract
from django_distlock.testing.memory import MemoryBackend
from tests import etcd_servers
from tests.conftest import REDIS
from tests.contract.connections import open_files, sockets_to
from tests.contract.on_etcd import OnEtcd
from tests.contract.on_servers import AdvisoryOnServer, OnServer, RowOnServer
from tests.servers import Etcd, chosen


class TestLocMem(LockBackendContract):
    """The backend in this process's memory."""

    alias = "locmem"

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        backend = self.backend()
        return type(backend)(alias, replace(backend.conf, prefix=prefix, location=self.alias))


class TestStandIn(LockBackendContract):
    """What `override_locks` puts in the place of an alias."""

    alias = "locmem"

    @pytest.fixture(autouse=True)
    def _stand_in(self) -> Iterator[None]:
        with override_locks(using=self.alias):
            yield

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        backend = self.backend()
        assert isinstance(backend, MemoryBackend)
        conf = replace(backend.conf, prefix=prefix)
        return MemoryBackend(alias, conf, space=backend._space, taken=[], longest_wait=None)


class TestDummy(LockBackendContract):
    """The backend that excludes nobody; only what is true of it, too, is collected."""

    alias = "dummy"


class InFile(LockBackendContract):
    """A technique of SQL, in a file of SQLite in WAL mode."""

    store_clock = False

    def open_connections(self) -> int:
        return open_files(self.backend(), settings.DATABASES["sqlite"]["NAME"])


if "sqlite" in chosen():

    class TestSQLite(InFile):
        """The table, in a file of SQLite in WAL mode."""

        alias = "sqlite"

    class TestPortableOnSQLite(InFile):
        """The table by the ORM alone, on SQLite."""

        alias = "portable-sqlite"

    class TestVersionOnSQLite(InFile):
        """Compare-and-swap, on SQLite."""

        alias = "version-sqlite"

    class TestSQLiteInMemory(LockBackendContract):
        """The table, in a database in memory that the threads share."""

        alias = "memory"
        store_clock = False
        own_processes = False


if "postgresql" in chosen():

    class TestPostgreSQL(OnServer):
        """The table, on PostgreSQL."""

        alias = "postgresql"

    class TestPortableOnPostgreSQL(OnServer):
        """The table by the ORM alone, on PostgreSQL."""

        alias = "portable-postgresql"

    class TestVersionOnPostgreSQL(OnServer):
        """Compare-and-swap, on PostgreSQL."""

        alias = "version-postgresql"

    class TestRowOnPostgreSQL(RowOnServer):
        """Rows locked by FOR UPDATE, on PostgreSQL."""

        alias = "row-postgresql"

    class TestAdvisoryOnPostgreSQL(AdvisoryOnServer):
        """Advisory locks, on PostgreSQL."""

        alias = "advisory-postgresql"


if "mariadb" in chosen():

    class TestMariaDB(OnServer):
        """The table, on MariaDB."""

        alias = "mariadb"

    class TestPortableOnMariaDB(OnServer):
        """The table by the ORM alone, on MariaDB."""

        alias = "portable-mariadb"

    class TestVersionOnMariaDB(OnServer):
        """Compare-and-swap, on MariaDB."""

        alias = "version-mariadb"

    class TestRowOnMariaDB(RowOnServer):
        """Rows locked by FOR UPDATE, on MariaDB."""

        alias = "row-mariadb"

    class TestAdvisoryOnMariaDB(AdvisoryOnServer):
        """GET_LOCK(), on MariaDB."""

        alias = "advisory-mariadb"


class OnRedis(LockBackendContract):
    """A technique of Redis, on the server of this run."""

    _twins: ClassVar[list[BaseLockBackend]] = []

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        self._twins.append(super().twin(alias, prefix))
        return self._twins[-1]

    def restart_store(self) -> None:
        REDIS[0].restart()

    def hang_store(self) -> AbstractContextManager[None]:
        return self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        REDIS[0].pause()
        try:
            yield
        finally:
            REDIS[0].resume()

    def open_connections(self) -> int:
        for backend in (self.backend(), *self._twins):
            assert isinstance(backend, RedisBackend)
            backend.close_idle()
        return sockets_to(REDIS[0].port)


if "redis" in chosen():

    class TestRedis(OnRedis):
        """Scripts, on a Redis that is given by its URL."""

        alias = "redis"

    class TestScriptlessRedis(OnRedis):
        """Transactions in the place of scripts."""

        alias = "scriptless-redis"

    class TestCachedRedis(OnRedis):
        """Scripts, on the Redis of a cache of django-redis; and uvloop."""

        alias = "cached-redis"
        loop_factory = uvloop.new_event_loop


if "etcd" in chosen():

    class TestEtcd(OnEtcd):
        """Keys and leases, on the etcd of this run."""

        alias = "etcd"

        @property
        def nodes(self) -> Sequence[Etcd]:
            """The server of this run."""
            return etcd_servers.NODE
