"""A lock that is freed by somebody who has no queue entry."""

from __future__ import annotations

import pytest

from django_distlock import LeaseLostError, LockNotHeldError, lock
from tests.claims import claim, granted, refused
from tests.servers import ZooKeeper
from tests.zookeeper.tools import Opener, queue_of


def test_another_alias_frees_it(server: ZooKeeper, opened: Opener, name: str) -> None:
    """By the nodes that it finds; who waits is the next, and keeps its entry."""
    ours, other = (opened(server.address, prefix=name) for _ in range(2))
    lease = lock(name, using=ours.alias, renew=False, wait=10).acquire()
    assert lease is not None
    token, waiter = lease.fencing_token, claim(ours, name)
    refused(ours, waiter)
    assert len(queue_of(other, name)) == 2
    with pytest.raises(LockNotHeldError):
        other.force_release(name, fencing_token=token - 1)
    assert other.force_release(name, fencing_token=token).fencing_token == token
    assert len(queue_of(other, name)) == 1
    with pytest.raises(LeaseLostError):
        lease.renew()
    assert granted(ours, waiter) > token
    with pytest.raises(LockNotHeldError):
        other.force_release(name, fencing_token=token)
    assert ours.release(waiter)
    with pytest.raises(LockNotHeldError):
        other.force_release(name)
