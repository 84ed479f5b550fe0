"""Three members of a cluster: the loss of any one of them costs neither a lock nor an entry."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, lock
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.core.values import Claim, Grant
from tests.backends.tools import elsewhere
from tests.claims import claim, granted, soon, started
from tests.etcd.tools import Opener
from tests.servers import Etcd, EtcdCluster

pytestmark = pytest.mark.usefixtures("cluster_leaves_nothing")

LONG = 30.0


def ordered(cluster: EtcdCluster, first: Etcd) -> list[str]:
    """Return the URLs of the members, that of ``first`` before the others."""
    return [first.url, *(url for url in cluster.urls if url != first.url)]


def waiter(backend: EtcdBackend, name: str) -> tuple[threading.Thread, list[Lease | None]]:
    """Begin to wait for a lock, and return when it is waited for."""
    got: list[Lease | None] = []
    thread = started(lambda: got.append(lock(name, using=backend.alias).acquire(wait=LONG)))
    soon(
        lambda: any(
            each.stream is not None for each in list(backend._algorithm.entries._all.values())
        )
    )
    return thread, got


def handed_over(lease: Lease, thread: threading.Thread, got: list[Lease | None]) -> None:
    """Release, and see that who waited has it."""
    assert thread.is_alive()
    lease.release()
    thread.join(LONG)
    (theirs,) = got
    assert theirs is not None
    assert theirs.fencing_token > lease.fencing_token
    theirs.release()


@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_member_is_lost_while_held_and_waited_for(
    how: str, which: str, cluster: EtcdCluster, opened: Opener, name: str
) -> None:
    """Killed, or stopped and continued: holder and waiter are both connected to it."""
    leader = cluster.leader
    member = leader if which == "leader" else next(n for n in cluster.nodes if n is not leader)
    backend = opened(ordered(cluster, member), prefix=name)
    lease = lock(name, using=backend.alias, ttl=20).acquire()
    assert lease is not None
    thread, got = waiter(backend, name)
    getattr(member, how)()
    lease.renew()
    handed_over(lease, thread, got)
    with lock(name, using=backend.alias):
        pass
    member.resume()
    cluster.bring_up()
    assert list(backend.held()) == []
    for node in cluster.nodes:
        assert [key for key in node.all_keys() if key.startswith(backend.located.root)] == []


def test_a_lock_outlives_every_member_in_turn(
    cluster: EtcdCluster, opened: Opener, name: str
) -> None:
    backend = opened(cluster.urls, prefix=name, COMMAND_TIMEOUT=15)
    lease = lock(name, using=backend.alias, ttl=30).acquire()
    assert lease is not None
    for node in cluster.nodes:
        node.kill()
        lease.renew()
        assert lock(name, using=backend.alias, wait=0).locked()
        cluster.bring_up()
    lease.release()


def test_a_minority_grants_and_renews_nothing(
    cluster: EtcdCluster, opened: Opener, name: str
) -> None:
    """A member that is alone does not say that a lock is held: it does not say anything."""
    left = cluster.nodes[0]
    backend = opened([left.url], prefix=name, COMMAND_TIMEOUT=1.5)
    lease = lock(name, using=backend.alias, ttl=20, renew=False).acquire()
    assert lease is not None
    for node in cluster.nodes[1:]:
        node.pause()
    for ask in (lease.renew, lock("other", using=backend.alias).acquire):
        with pytest.raises(LockBackendError):
            ask()
    with pytest.raises(LockBackendError):
        backend.call("inspect", name)
    for node in cluster.nodes[1:]:
        node.resume()

    def renewed() -> bool:
        with suppress(LockBackendError):  # it hears of the new leader later than that one is known
            lease.renew()
            return True
        return False

    soon(renewed)
    lease.release()


def test_a_leader_that_stood_still_renews_nothing(
    cluster: EtcdCluster, opened: Opener, name: str
) -> None:
    """E2. What it reads when it goes on, it answers by what the others have agreed on."""
    old = cluster.leader
    others = [node.url for node in cluster.nodes if node is not old]
    there = opened([old.url], prefix=name, COMMAND_TIMEOUT=15.0)
    here = opened(others, prefix=name)
    mine, theirs = claim(there, name, ttl=1.5), claim(here, name, ttl=6.0)
    granted(there, mine)
    old.pause()
    answers: list[bool] = []
    client = started(lambda: answers.append(there.renew(mine)))
    refused_or_granted(here, theirs)
    token = granted(here, theirs, LONG)
    old.resume()
    client.join(LONG)
    assert answers == [False]
    info = here.inspect(name)
    assert info is not None
    assert (info.owner, info.fencing_token) == (theirs.owner, token)
    assert here.release(theirs)


def refused_or_granted(backend: EtcdBackend, waiting: Claim) -> None:
    """Wait until there is nobody ahead; the choice of a leader may take longer than the lease."""
    if isinstance(backend.try_acquire(waiting, LONG), Grant):
        return
    end = time.monotonic() + LONG
    while backend.queue(waiting, 1.0, LONG) or time.monotonic() < end:
        info = backend.inspect(waiting.name)
        if info is not None and info.owner == waiting.owner:
            return


def test_a_session_ends_under_another_leader(
    cluster: EtcdCluster, opened: Opener, name: str
) -> None:
    """A holder that vanished frees its lock though the leader that counted is dead, too."""
    backend = opened(cluster.urls, prefix=name)
    lease = lock(name, using=backend.alias, ttl=2.0, renew=False).acquire()
    assert lease is not None
    cluster.leader.kill()
    theirs = elsewhere(lambda: lock(name, using=backend.alias).acquire(wait=LONG))
    assert theirs is not None
    with pytest.raises(LeaseLostError):
        lease.release()
    theirs.release()


def test_servers_of_different_clusters_are_told(
    cluster: EtcdCluster, server: Etcd, opened: Opener, name: str
) -> None:
    """They know nothing of each other's locks: two holders, else."""
    member = cluster.nodes[0]
    backend = opened([member.url, server.url], prefix=name)
    lease = lock(name, using=backend.alias, ttl=8, renew=False).acquire()
    assert lease is not None
    member.kill()
    with pytest.raises(LockBackendError, match="of different clusters") as caught:
        lock("other", using=backend.alias).acquire()
    assert "Name the members of one cluster" in str(caught.value)
    # Nor is a lock called lost by those who never knew of it.
    with pytest.raises(LockBackendError, match="of different clusters"):
        lease.renew()
    lease.check()
