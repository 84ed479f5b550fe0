"""Fixtures for the tests of the consul backend; not collected where Consul is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import consul_servers
from tests.consul.tools import Opener, opener
from tests.consul_servers import CONSUL
from tests.orphans import nothing_left
from tests.servers import Consul, chosen

if "consul" not in chosen():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def server() -> Consul:
    """The server of this run, which other tests use as well."""
    return CONSUL[0]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Open aliases for the test."""
    with opener() as make:
        yield make


@pytest.fixture
def leaves_nothing(server: Consul) -> Iterator[None]:
    """Assert that a test leaves neither a key nor a session."""
    with nothing_left(server.traces, "consul"):
        yield


@pytest.fixture
def cluster_leaves_nothing() -> Iterator[None]:
    """Assert the same of the cluster, which others have put right again by then.

    A session of which nobody was told, as its server died, ends after two of its TTLs, counted
    anew by each new leader.
    """
    with nothing_left(consul_servers.cluster().nodes[0].traces, "consul-cluster", within=200):
        yield
