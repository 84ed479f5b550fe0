"""A cluster whose servers are killed, stopped and continued: no lock is lost, nothing is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, LockNotAcquiredError, lock
from django_distlock.backends.consul import ConsulBackend
from tests import consul_servers
from tests.backends.tools import elsewhere
from tests.claims import started
from tests.consul.tools import Opener, keys_of
from tests.servers import Consul, ConsulCluster

pytestmark = [pytest.mark.usefixtures("cluster_leaves_nothing"), pytest.mark.timeout(450)]

TTL, WAIT, TIMEOUT = 60.0, 150.0, 45.0


@pytest.fixture
def cluster() -> Iterator[ConsulCluster]:
    """The cluster of this process, well before and after."""
    found = consul_servers.cluster()
    found.mend()
    yield found
    found.mend()


@pytest.fixture
def backend(cluster: ConsulCluster, opened: Opener) -> Iterator[ConsulBackend]:
    """An alias on it, that leaves no key; for sessions there is `cluster_leaves_nothing`.

    One that was made while its leader was killed is known to nobody, and lasts for a while.
    """
    # Of a call the first server that is asked may take a third, and an election takes seconds.
    made = opened(cluster.urls, COMMAND_TIMEOUT=TIMEOUT)
    yield made
    cluster.mend()
    assert keys_of(cluster.nodes[0], made) == []
    made.close()


def test_what_a_follower_passes_on_is_no_missing_leader(
    cluster: ConsulCluster, opened: Opener
) -> None:
    """A follower says "rpc error" before every error of the leader's, also one that lasts."""
    leader = cluster.leader()
    follower = next(node for node in cluster.nodes if node is not leader)
    asking = opened([follower.url], SERVICE_CHECKS=["missing"], COMMAND_TIMEOUT=TIMEOUT)
    started_at = time.monotonic()
    with pytest.raises(LockBackendError, match="SERVICE_CHECKS") as caught:
        lock("a", using=asking.alias, wait=WAIT).acquire()
    assert "leader" not in str(caught.value)
    assert time.monotonic() - started_at < TIMEOUT


def hurt(server: Consul, how: str) -> None:
    """Kill or stop a server."""
    if how == "kill":
        server.kill()
    else:
        server.pause()


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_leader_is_lost_while_one_holds_and_one_waits(
    cluster: ConsulCluster, backend: ConsulBackend, how: str
) -> None:
    """Keep the lease and the queue entry; hand over through the next leader."""
    got: list[Lease] = []

    def wait() -> None:
        with lock("a", using=backend.alias, ttl=TTL, wait=WAIT) as second:
            second.check()
            got.append(second)

    with lock("a", using=backend.alias, ttl=TTL) as first:
        waiting = started(wait)
        while not backend._algorithm.queue.entries:
            time.sleep(0.02)
        hurt(cluster.leader(), how)
        first.renew()
        assert elsewhere(lambda: lock("a", using=backend.alias, wait=0).acquire()) is None
        assert not got
    waiting.join(WAIT)
    (second,) = got
    assert second.fencing_token > first.fencing_token


def test_the_leader_is_lost_in_async_code(cluster: ConsulCluster, backend: ConsulBackend) -> None:
    async def main() -> list[int]:
        mine = lock("a", using=backend.alias, ttl=TTL, wait=WAIT)
        async with mine as first:
            waiting = asyncio.create_task(mine.aacquire())
            while not backend._algorithm.queue.entries:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(cluster.leader().kill)
            await first.arenew()
        second = await waiting
        assert second is not None
        await second.arelease()
        return [first.fencing_token, second.fencing_token]

    first, second = asyncio.run(main())
    assert first < second


def test_a_minority_is_stopped_and_continued(
    cluster: ConsulCluster, backend: ConsulBackend
) -> None:
    """Go on without a server that is not the leader, also when it is the one that was asked."""
    leader = cluster.leader()
    tokens = []
    for follower in [node for node in cluster.nodes if node is not leader]:
        with lock("a", using=backend.alias, ttl=TTL, wait=WAIT) as lease:
            follower.pause()
            lease.renew()
            tokens.append(lease.fencing_token)
        with lock("a", using=backend.alias, ttl=TTL, wait=WAIT) as lease:
            tokens.append(lease.fencing_token)
        follower.resume()
        cluster.wait()
    assert tokens == sorted(set(tokens))


def test_a_short_election_loses_no_lease(cluster: ConsulCluster, backend: ConsulBackend) -> None:
    """Keep a lease that the background renews, over an election of less than its ttl (trap E5)."""
    with lock("a", using=backend.alias, ttl=TTL) as lease:
        cluster.leader().kill()
        deadline = lease._hold.deadline
        while lease._hold.deadline == deadline:  # until the background has renewed it
            lease.check()
            time.sleep(0.05)


def test_a_majority_that_is_lost(cluster: ConsulCluster, backend: ConsulBackend) -> None:
    """Say that the store failed, not that somebody holds; end the lease by its own deadline."""
    lease = lock("a", using=backend.alias, ttl=2).acquire()
    assert lease is not None
    for node in cluster.nodes[:2]:
        node.kill()
    with pytest.raises(LockBackendError) as raised:
        lock("b", using=backend.alias, wait=0.5).acquire()
    assert not isinstance(raised.value, LockNotAcquiredError)
    assert all(url in str(raised.value) for url in cluster.urls)
    while lease.remaining():
        time.sleep(0.05)
    with pytest.raises(LeaseLostError):
        lease.check()
    cluster.mend()
    with lock("a", using=backend.alias, ttl=2, wait=WAIT) as second:
        assert second.fencing_token > lease.fencing_token
    with pytest.raises(LeaseLostError):
        lease.release()


def test_a_cluster_that_was_restarted_with_its_data(
    cluster: ConsulCluster, backend: ConsulBackend
) -> None:
    """Find the lock and the session as they were."""
    with lock("a", using=backend.alias, ttl=TTL) as lease:
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        cluster.wait()
        lease.renew()
        assert elsewhere(lambda: lock("a", using=backend.alias, wait=0).acquire()) is None
    with lock("a", using=backend.alias, ttl=TTL, wait=0) as second:
        assert second.fencing_token > lease.fencing_token
