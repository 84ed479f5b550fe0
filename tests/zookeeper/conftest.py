"""Servers and aliases for the tests of the zookeeper backend, which need the store of that name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.orphans import nothing_left
from tests.proxy import Proxy
from tests.servers import ZooKeeper, chosen
from tests.zookeeper.tools import Opener, opener
from tests.zookeeper_servers import SERVER, cluster

collect_ignore_glob = [] if "zookeeper" in chosen() else ["test_*.py"]


@pytest.fixture
def server() -> Iterator[ZooKeeper]:
    """Give the ZooKeeper of this run, which goes on afterwards."""
    (server,) = SERVER
    yield server
    server.resume()
    server.start()


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Give a function that opens an alias of the zookeeper backend; all are closed at the end."""
    with opener() as make:
        yield make


@pytest.fixture
def proxy(server: ZooKeeper) -> Iterator[Proxy]:
    """Stand before the ZooKeeper of this run."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def leaves_nothing(server: ZooKeeper) -> Iterator[None]:
    """Assert that a test leaves neither a node nor a session."""
    with nothing_left(server.traces, "zookeeper"):
        yield


@pytest.fixture
def cluster_leaves_nothing() -> Iterator[None]:
    """Assert the same of the cluster, which others have put right again by then."""
    with nothing_left(cluster().members[0].traces, "zookeeper-cluster"):
        yield
