"""Fixtures for the tests of the consul backend; not collected where Consul is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consul.tools import Opener, opener
from tests.consul_servers import CONSUL
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
