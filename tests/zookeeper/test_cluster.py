"""Three servers: the leader dies, a minority stands still, a client's server hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, lock
from django_distlock.backends.zookeeper import ZooKeeperBackend
from tests.claims import claim, granted, soon, started
from tests.servers import ZooKeeperCluster
from tests.servers.zookeeper import Member
from tests.zookeeper.tools import Opener, queue_of
from tests.zookeeper_servers import cluster

pytestmark = pytest.mark.usefixtures("cluster_leaves_nothing")

LONG = 60.0


@pytest.fixture
def servers() -> Iterator[ZooKeeperCluster]:
    """Give the cluster, all of whose servers serve again afterwards."""
    yield cluster()
    cluster()


def held_and_waited_for(
    backend: ZooKeeperBackend, name: str
) -> tuple[Lease, threading.Thread, list[Lease | None]]:
    """Hold a lock, and have another thread wait for it."""
    lease = lock(name, using=backend.alias, ttl=60).acquire(wait=10)
    assert lease is not None
    got: list[Lease | None] = []
    thread = started(lambda: got.append(lock(name, using=backend.alias).acquire(wait=LONG)))
    soon(lambda: len(backend._entries._watches) == 1)
    return lease, thread, got


def handed_over(
    backend: ZooKeeperBackend,
    lease: Lease,
    thread: threading.Thread,
    got: list[Lease | None],
) -> None:
    """Release the lock, and see that the waiter has it; nothing is left."""
    name = lease.name
    lease.check()
    lease.renew()
    lease.release()
    thread.join(LONG)
    (theirs,) = got
    assert theirs is not None
    assert theirs.fencing_token > lease.fencing_token
    theirs.release()
    assert queue_of(backend, name) == []


@pytest.mark.parametrize("connected", ["leader", "follower"])
def test_the_leader_is_killed(
    servers: ZooKeeperCluster, opened: Opener, name: str, connected: str
) -> None:
    """Keep holder and waiter over the death (-9) of the leader, connected to it or to another."""
    leader = servers.leader
    own = leader if connected == "leader" else servers.followers[0]
    backend = opened(own.address, session=30.0)
    lease, thread, got = held_and_waited_for(backend, name)
    backend._session._client.set_hosts(servers.address)  # it stays where it is until that dies
    assert server_of(backend, servers) is own
    leader.kill()
    servers.wait()
    handed_over(backend, lease, thread, got)
    first = granted(backend, mine := claim(backend, name))
    backend.release(mine)
    leader.start()
    servers.wait()
    assert first > lease.fencing_token


def server_of(backend: ZooKeeperBackend, servers: ZooKeeperCluster) -> Member:
    """Return the server that an alias is connected to."""
    port = backend._session._client._connection._socket.getpeername()[1]
    (member,) = [member for member in servers.members if member.port == port]
    return member


def test_the_clients_own_server_stands_still(
    servers: ZooKeeperCluster, opened: Opener, name: str
) -> None:
    """Change to another server in time, while it is stopped (SIGSTOP), and when it goes on."""
    backend = opened(servers.address, session=12.0)
    lease, thread, got = held_and_waited_for(backend, name)
    own = server_of(backend, servers)
    own.pause()
    # Others keep asking all the while, which is when kazoo sees nothing amiss.
    over = threading.Event()

    def busy() -> None:
        while not over.wait(0.05):
            with suppress(LockBackendError):
                lock(f"{name}busy", using=backend.alias, wait=0, ttl=2).acquire()

    asking = started(busy)
    soon(lambda: backend._session.up and server_of(backend, servers) is not own, within=30.0)
    over.set()
    asking.join(LONG)
    own.resume()
    handed_over(backend, lease, thread, got)
    soon(lambda: queue_of(backend, f"{name}busy") == [])


def test_a_minority_stands_still(servers: ZooKeeperCluster, opened: Opener, name: str) -> None:
    """Go on without a follower that is stopped (SIGSTOP), and with it again."""
    one = servers.followers[0]
    others = ",".join(each.address for each in servers.members if each is not one)
    backend = opened(others, session=30.0)
    lease, thread, got = held_and_waited_for(backend, name)
    one.pause()
    for _ in range(5):
        with lock(f"{name}other", using=backend.alias, wait=10):
            pass
    one.resume()
    handed_over(backend, lease, thread, got)


def test_without_a_majority_nothing_is_granted_and_leases_end(
    servers: ZooKeeperCluster, opened: Opener, name: str
) -> None:
    """Refuse, and lose what was held before anybody else could have it."""
    backend = opened(servers.address, session=4.0, COMMAND_TIMEOUT=1.0)
    lease = lock(name, using=backend.alias, ttl=60).acquire()
    assert lease is not None
    for member in servers.members[:2]:
        member.pause()
    with pytest.raises(LockBackendError):
        lock(f"{name}other", using=backend.alias).acquire(wait=1.0)
    # By its own clock. A leader that is left alone answers a client until it notices that it is.
    soon(lambda: lease.lost, within=20.0)
    with pytest.raises(LeaseLostError):
        lease.check()
    for member in servers.members[:2]:
        member.resume()
    servers.wait()
    soon(lambda: backend._session.up, within=30.0)
    with lock(name, using=backend.alias, wait=20) as again:
        assert again.fencing_token > lease.fencing_token
    assert queue_of(backend, name) == []
