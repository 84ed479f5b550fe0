"""Clusters whose servers are all written: a write conflicts with the others' at its commit.

Row locks and GET_LOCK() are known to one server only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.core.management import call_command

from django_distlock import InvalidLockBackendError, lock, locks
from django_distlock.backends.table.portable import PortableStatements
from tests.backends.tools import SERVERS, Elsewhere, database_alias, lock_alias, soon, table
from tests.servers.primaries import primaries

BACKENDS = "django_distlock.backends"
TECHNIQUES = {
    "table": f"{BACKENDS}.table.TableBackend",
    "version": f"{BACKENDS}.version.VersionBackend",
    "row": f"{BACKENDS}.row.RowBackend",
    "advisory": f"{BACKENDS}.advisory.AdvisoryBackend",
}
THREADS, ROUNDS = 2, 100  # at each server; the defect came at one grant in forty


@pytest.fixture(scope="module", params=[store for store in SERVERS if store != "postgresql"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Two servers; the names are aliases of DATABASES, and ``<technique>-<name>`` of locks."""
    names = ["here", "there"]
    with primaries(request.param) as nodes, ExitStack() as stack:
        nodes[0].execute("CREATE DATABASE own CHARACTER SET utf8mb4")
        for name, node in zip(names, nodes, strict=True):
            stack.enter_context(database_alias(name, node.settings("own")))
            for technique, backend in TECHNIQUES.items():
                alias = f"{technique}-{name}"
                stack.enter_context(lock_alias(alias, BACKEND=backend, LOCATION=name))
        call_command("migrate", database="here", verbosity=0)
        assert soon(lambda: "distlock_advisory" in nodes[1].execute("SHOW TABLES FROM own"), 30)
        yield names


@pytest.mark.parametrize("technique", ["table", "version"])
def test_one_holder_on_all_servers(servers: list[str], technique: str, name: str) -> None:
    """A conflict at the commit is a lost attempt, and only one is told that it has won."""
    inside: list[str] = []
    tokens: list[int] = []

    def work(alias: str) -> None:
        for _ in range(ROUNDS):
            with lock(name, using=alias, wait=60, ttl=60) as lease:
                inside.append(alias)
                assert inside == [alias], "two hold the lock at once"
                tokens.append(lease.fencing_token)
                inside.clear()

    aliases = [f"{technique}-{server}" for server in servers]
    for worker in [Elsewhere(lambda a=a: work(a)).start() for a in aliases * THREADS]:  # type: ignore[misc]
        worker.result()
    assert tokens == sorted(set(tokens))
    assert len(tokens) == ROUNDS * THREADS * len(servers)
    for alias in aliases:
        assert isinstance(table(alias).statements(), PortableStatements)
        assert "distlock.W017" in [each.id for each in locks[alias].check_deploy()]


@pytest.mark.parametrize("technique", ["row", "advisory"])
def test_what_one_server_knows_is_refused(servers: list[str], technique: str, name: str) -> None:
    alias = f"{technique}-{servers[1]}"
    with pytest.raises(InvalidLockBackendError, match=r"written at once.*table backend"):
        lock(name, using=alias, wait=0).acquire()
    assert any("written at once" in each.msg for each in locks[alias].check_deploy())
