"""Servers and aliases for the tests of the etcd backend, which need the store of that name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import etcd_servers
from tests.etcd.tools import Opener, opener
from tests.orphans import nothing_left
from tests.proxy import Proxy
from tests.servers import Etcd, EtcdCluster, chosen

collect_ignore_glob = [] if "etcd" in chosen() else ["test_*.py"]


@pytest.fixture
def server() -> Etcd:
    """The etcd of this run."""
    return etcd_servers.NODE[0]


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    """The cluster, with all its members; put right again after a test that hurts them."""
    cluster = etcd_servers.running_cluster()
    yield cluster
    for node in cluster.nodes:
        node.resume()
    cluster.bring_up()


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Give a function that opens an alias of the etcd backend; all are closed at the end."""
    with opener() as make:
        yield make


@pytest.fixture
def proxy(server: Etcd) -> Iterator[Proxy]:
    """Stand before the etcd of this run."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def leaves_nothing(server: Etcd) -> Iterator[None]:
    """Assert that a test leaves neither a key nor a lease."""
    with nothing_left(server.traces, "etcd"):
        yield


@pytest.fixture
def cluster_leaves_nothing() -> Iterator[None]:
    """Assert the same of the cluster, which others have put right again by then."""
    with nothing_left(etcd_servers.running_cluster().nodes[0].traces, "etcd-cluster"):
        yield
