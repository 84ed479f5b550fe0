"""A program that ends leaves no session and no lease in the store that it used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.claims import soon
from tests.servers import Consul, Etcd, ZooKeeper, chosen

PROGRAM = """
import sys
from django.conf import settings
settings.configure(DISTLOCKS={"default": {
    "BACKEND": sys.argv[1], "LOCATION": sys.argv[2], "OPTIONS": {}}})
from django_distlock import lock
with lock("a", wait=20):
    pass
if sys.argv[3] == "held":
    lease = lock("b", wait=20, ttl=60).acquire()
"""
STORES: dict[str, tuple[type[Etcd | Consul | ZooKeeper], str]] = {}
if "etcd" in chosen():
    STORES["etcd"] = Etcd, "django_distlock.backends.etcd.EtcdBackend"
if "consul" in chosen() and Consul.installed():
    STORES["consul"] = Consul, "django_distlock.backends.consul.ConsulBackend"
if "zookeeper" in chosen():
    STORES["zookeeper"] = ZooKeeper, "django_distlock.backends.zookeeper.ZooKeeperBackend"


@pytest.mark.parametrize("what", ["released", "held"])
@pytest.mark.parametrize("store", STORES)
def test_a_program_that_ends_ends_what_holds_nothing(store: str, what: str) -> None:
    """A lease that was not released is left to its ttl, as another process may have it by now."""
    kind, backend = STORES[store]
    with kind() as server:
        where = server.address if isinstance(server, ZooKeeper) else server.url
        words = [sys.executable, "-W", "error", "-c", PROGRAM, backend, where, what]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        if what == "held":
            assert server.traces()
        else:
            soon(lambda: not server.traces())
