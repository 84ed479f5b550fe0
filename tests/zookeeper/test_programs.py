"""Whole programs on ZooKeeper: the demo, a pool of gevent, forked children."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import ZooKeeper
from tests.shop import demo_holds, environment_of, program


@pytest.fixture
def environment(server: ZooKeeper, tmp_path: Path) -> dict[str, str]:
    """The environment of a shop with tables of its own, on the ZooKeeper of this run."""
    return environment_of(tmp_path, SHOP_ZOOKEEPER=server.address)


def test_the_demo_on_zookeeper(server: ZooKeeper, tmp_path: Path) -> None:
    """Sell each article once, and go on when a holder is killed."""
    demo_holds("zookeeper", tmp_path, SHOP_ZOOKEEPER=server.address)


UNDER_GEVENT = """
from gevent import monkey; monkey.patch_all()
import sys, threading, time
import gevent
from django.conf import settings
settings.configure(DISTLOCKS={"default": {
    "BACKEND": "django_distlock.backends.zookeeper.ZooKeeperBackend",
    "LOCATION": sys.argv[1], "OPTIONS": {"SESSION_TIMEOUT": 4}}})
from django_distlock import lock, locks
tokens = []
def work():
    with lock("turn", ttl=3.0, wait=30) as lease:
        time.sleep(3.3)
        lease.check()
        tokens.append(lease.fencing_token)
gevent.joinall([gevent.spawn(work) for _ in range(2)], raise_error=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert tokens == sorted(set(tokens)) and len(tokens) == 3, tokens
print(type(locks["default"]._session._client.handler).__mro__[1].__name__)
locks.close_all()
"""


def test_greenlets_wait_and_are_renewed(environment: dict[str, str], server: ZooKeeper) -> None:
    """Use kazoo's handler for gevent where it has patched (H3)."""
    said = program(environment, "-c", UNDER_GEVENT, server.address)
    assert said == "SequentialGeventHandler\n"


FORKING = """
import os, sys
from django.conf import settings
settings.configure(DISTLOCKS={"default": {
    "BACKEND": "django_distlock.backends.zookeeper.ZooKeeperBackend",
    "LOCATION": sys.argv[1], "OPTIONS": {"SESSION_TIMEOUT": 4}}})
from django_distlock import lock, locks
lease = lock("forked", wait=0).acquire()
session = locks["default"]._session.id
reader, writer = os.pipe()
if (child := os.fork()) == 0:
    assert lock("forked", wait=0).acquire() is None
    with lock("child's", wait=5):
        own = locks["default"]._session.id
        assert own not in (None, session)
    locks.close_all()
    os.write(writer, f"0x{own:x}".encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(writer)
own = os.read(reader, 100).decode()
lease.check()
lease.renew()
assert locks["default"]._session.id == session
lease.release()
locks.close_all()
print(own, f"0x{session:x}")
"""


def test_a_forked_child_has_a_session_of_its_own(
    environment: dict[str, str], server: ZooKeeper
) -> None:
    """Leave the parent's session alone in the child, and end the child's with it."""
    own, parents = program(environment, "-c", FORKING, server.address).split()
    assert own.startswith("0x")
    dump = server.ask("dump")
    assert own not in dump
    assert parents not in dump
