"""A release that meets a waiter at the worst moment: no wake-up is lost, and nothing is left.

On every technique and store, each time with a real store's answers and no luck: a waiter is
stopped where it is to be met, or is met at each of many moments.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.conf import settings

from django_distlock import Lease, lock, locks
from django_distlock.testing.taps import Gate, tap
from tests.backends.tools import Elsewhere, soon
from tests.faults.shares import IN_CONSUL, IN_QUORUM, IN_REDIS, IN_ZOOKEEPER, SQL
from tests.servers import chosen

ALIASES = [
    *(f"{technique}{store}" for technique, store in SQL),
    *(*IN_REDIS, *IN_QUORUM, *IN_CONSUL, *IN_ZOOKEEPER),
    *(["etcd"] if "etcd" in chosen() else []),
]
"""Each technique on each store; not the clusters, whose paths to wait are the same."""

STEP = 0.005
MOMENTS = [number * STEP for number in range(-4, 5)]
"""Seconds between the end of a wait and the release that it meets."""

pytestmark = pytest.mark.parametrize("alias", ALIASES)


@pytest.fixture(autouse=True)
def _there(alias: str) -> Iterator[None]:
    assert alias in settings.DISTLOCKS
    yield
    del locks[alias]


def test_a_release_between_the_refusal_and_the_wait(alias: str, name: str) -> None:
    """Whoever was refused finds the lock that was freed before its wait began."""
    gate = Gate()
    backend = locks[alias]
    held = lock(name, using=alias, ttl=60).acquire()
    assert held is not None
    with ExitStack() as stack:
        for verb in ("pause", "queue"):
            stack.enter_context(tap(backend, verb, before=gate))
        waiting = Elsewhere(lambda: lock(name, using=alias, ttl=60).acquire(wait=None)).start()
        try:
            assert soon(gate.reached)
            held.release()
        finally:
            gate.open()
        lease = waiting.result()
    assert isinstance(lease, Lease)
    assert lease.fencing_token > held.fencing_token
    lease.release()


def test_a_wait_that_ends_as_the_lock_is_freed(alias: str, name: str) -> None:
    """Be it granted or not at that moment: the lock is there for the next one, and no remains."""
    wait = 0.06
    tokens: list[int] = []
    for moment in MOMENTS:
        held = lock(name, using=alias, ttl=60).acquire(wait=20)
        assert held is not None
        waiting = Elsewhere(lambda: lock(name, using=alias, ttl=60).acquire(wait=wait)).start()
        time.sleep(wait + moment)
        held.release()
        lease = waiting.result()
        tokens.append(held.fencing_token)
        if lease is not None:
            tokens.append(lease.fencing_token)
            lease.release()
    last = lock(name, using=alias, ttl=60).acquire(wait=20)
    assert last is not None
    info = locks[alias].inspect(name)
    assert info is not None
    assert not info.waiters
    last.release()
    assert tokens == sorted(set(tokens))
    assert not lock(name, using=alias).locked()
