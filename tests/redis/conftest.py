"""Servers and aliases for the tests of the redis backend, which need the store of that name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import REDIS
from tests.proxy import Proxy
from tests.redis.tools import Opener, opener
from tests.servers import Redis, chosen

collect_ignore_glob = [] if "redis" in chosen() else ["test_*.py"]


@pytest.fixture
def server() -> Redis:
    """The Redis of this run."""
    return REDIS[0]


@pytest.fixture
def alone() -> Iterator[Redis]:
    """A Redis of the test's own, that counts nobody else's commands; empty when started again."""
    with Redis(persistent=False) as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Give a function that opens an alias of the redis backend; all are closed at the end."""
    with opener() as make:
        yield make


@pytest.fixture
def proxy(server: Redis) -> Iterator[Proxy]:
    """Stand before the Redis of this run."""
    with Proxy(server.port) as proxy:
        yield proxy
