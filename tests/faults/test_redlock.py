"""Redlock with nodes that are dead, stopped, flapping, empty, or an hour ahead of their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

import pytest

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    LockNotAcquiredError,
    locks,
)
from django_distlock.backends.redlock.inspect import QuorumInfo
from tests.backends.tools import elsewhere, lock_alias
from tests.faults.clocks import HOUR
from tests.faults.quorums import (
    NAME,
    WAYS,
    backend,
    free_soon,
    jump,
    key,
    majority,
    minority,
    own,
    use,
)
from tests.proxy import Proxy
from tests.servers import Redis, chosen

BACKEND = "django_distlock.backends.redlock.RedlockBackend"


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Redis]]:
    """Five servers of these tests' own; without their data when they are started again."""
    nodes = [Redis(persistent=False) for _ in range(5)]
    try:
        for node in nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.stop()


@pytest.fixture(params=[3, 5])
def nodes(request: pytest.FixtureRequest, servers: list[Redis]) -> Iterator[list[Redis]]:
    """The alias "own" on three or five of them, which are empty and well before and after."""
    some = servers[: request.param]
    for node in some:
        node.execute("FLUSHALL")
    with lock_alias("own", BACKEND=BACKEND, LOCATION=[node.url() for node in some]):
        assert backend().cluster.shown == [node.url() for node in some]
        try:
            yield some
        finally:
            for node in some:
                node.resume()
                node.start()


@pytest.mark.parametrize("way", WAYS)
class TestRedlock:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    @pytest.mark.parametrize("how", ["kill", "pause"])
    def test_a_minority_that_is_away(self, nodes: list[Redis], how: str, way: str) -> None:
        tokens = WAYS[way]()
        for node in minority(nodes):
            getattr(node, how)()
        tokens += WAYS[way]()
        for node in minority(nodes):
            node.resume()
            node.start()
        tokens += WAYS[way]()
        assert tokens == sorted(set(tokens))

    @pytest.mark.parametrize("how", ["kill", "pause"])
    def test_a_lease_outlives_a_minority(self, nodes: list[Redis], how: str, way: str) -> None:
        with own() as lease:
            for node in minority(nodes):
                getattr(node, how)()
            lease.renew()
            assert elsewhere(lambda: own().acquire()) is None
            assert own().locked()
        WAYS[way]()

    def test_the_first_use_while_a_node_swallows_connections(
        self, nodes: list[Redis], way: str
    ) -> None:
        """Leave time for the answers, whichever of the nodes it is: they are asked in an order."""
        for node in nodes:
            del locks["own"]
            assert backend().cluster.shown  # made anew, and connected to none of them
            node.pause()
            WAYS[way]()
            node.resume()

    def test_flapping_nodes(self, nodes: list[Redis], way: str) -> None:
        """Go on while one node after the other goes and comes back, without what it knew."""
        tokens: list[int] = []
        for node in nodes:
            node.kill()
            tokens += WAYS[way]()
            node.start()
            tokens += WAYS[way]()
        assert tokens == sorted(set(tokens))

    @pytest.mark.parametrize("how", ["kill", "pause"])
    def test_a_majority_that_is_away_is_no_holder(
        self, nodes: list[Redis], how: str, way: str
    ) -> None:
        """Raise an error of the store, which names each node and its vote."""
        WAYS[way]()
        for node in majority(nodes):
            getattr(node, how)()
        with pytest.raises(LockBackendError) as raised:
            WAYS[way]()
        for node in nodes:
            assert node.url() in str(raised.value)
        assert f"{len(nodes) // 2 + 1} are needed" in str(raised.value)
        assert not isinstance(raised.value, LockNotAcquiredError)
        for node in nodes:
            node.resume()
            node.start()
        free_soon()
        WAYS[way]()

    def test_no_node_is_waited_for_longer_than_told(self, nodes: list[Redis], way: str) -> None:
        """NODE_TIMEOUT of 0.3 s, where a share of the ttl would be 1 s and COMMAND_TIMEOUT 5 s."""
        locks.settings["own"]["OPTIONS"] = {"NODE_TIMEOUT": 0.3}
        del locks["own"]
        WAYS[way]()
        for node in majority(nodes):
            node.pause()
        took = []
        for _ in range(3):  # the fastest of them: the machine may be busy
            began = time.monotonic()
            with pytest.raises(LockBackendError, match="are needed"):
                WAYS[way]()
            took.append(time.monotonic() - began)
        assert 0.3 <= min(took) < 1.0

    def test_held_is_not_called_down(self, nodes: list[Redis], way: str) -> None:
        with own():
            for node in minority(nodes):
                node.kill()
            with pytest.raises(LockNotAcquiredError):
                elsewhere(WAYS[way])

    @pytest.mark.parametrize("hours", [1, -1])
    def test_one_clock_jumps(self, nodes: list[Redis], hours: int, way: str) -> None:
        """Keep the lock though one node ends its ttl, or not; and tokens though one is ahead."""
        tokens = WAYS[way]()
        with own() as lease:
            tokens.append(lease.fencing_token)
            jump(nodes[0], hours * HOUR)
            lease.renew()
            assert elsewhere(lambda: own().acquire()) is None
        tokens += WAYS[way]()
        # A node whose clock was ahead has drawn tokens of its own hour.
        ahead = f"{tokens[-1] + HOUR * 1_000_000:016}"
        nodes[0].execute("SETRANGE", key(), "13", ahead)
        tokens += WAYS[way]()
        nodes[0].kill()  # and is not there to tell of them
        tokens += WAYS[way]()
        assert tokens == sorted(set(tokens))

    def test_nodes_restarted_one_by_one_keep_a_lock_that_is_renewed(
        self, nodes: list[Redis], way: str
    ) -> None:
        """Put the lock back where it was lost, so that a rolling restart does not cost it."""
        with own() as lease:
            for node in nodes:
                node.kill()
                node.start()
                deadline = time.monotonic() + 5
                while True:  # a node is asked again a moment after it is back
                    lease.renew()
                    info = backend().inspect(NAME)
                    assert isinstance(info, QuorumInfo)
                    if all(vote.startswith("held") for vote in info.votes.values()):
                        break
                    assert time.monotonic() < deadline, info.votes
                    time.sleep(0.02)
            assert elsewhere(lambda: own().acquire()) is None
        WAYS[way]()

    def test_all_restarted_without_their_data_lose_the_lock(
        self, nodes: list[Redis], way: str
    ) -> None:
        """See the loss at the next renewal, and give greater tokens all the same."""
        with pytest.raises(LeaseLostError), own() as lease:  # noqa: PT012
            for node in nodes:
                node.kill()
                node.start()
            with pytest.raises(LeaseLostError):
                lease.renew()
        assert WAYS[way]()[0] > lease.fencing_token

    def test_what_a_stopped_node_reads_late_is_undone(self, nodes: list[Redis], way: str) -> None:
        """Leave nothing on a node that was stopped while the lock was taken and released."""
        WAYS[way]()
        nodes[0].pause()
        WAYS[way]()
        nodes[0].resume()
        deadline = time.monotonic() + 5
        while int(nodes[0].execute("ZCARD", "distlock:1:redlock-held")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        WAYS[way]()

    @pytest.mark.parametrize("trouble", ["type", "memory", "scripts"])
    def test_a_node_that_answers_with_errors(
        self, nodes: list[Redis], trouble: str, way: str
    ) -> None:
        """Count an error of the server as no vote: a wrong type, a full memory."""
        node = nodes[0]
        if trouble == "type":
            node.execute("LPUSH", key(), "foreign")
        elif trouble == "memory":
            node.execute("CONFIG", "SET", "maxmemory", "1")
        else:
            node.execute("SCRIPT", "FLUSH")
        try:
            WAYS[way]()
        finally:
            node.execute("CONFIG", "SET", "maxmemory", "0")

    def test_scripts_that_were_flushed_while_it_was_held(
        self, nodes: list[Redis], way: str
    ) -> None:
        with own() as lease:
            for node in nodes:
                node.execute("SCRIPT", "FLUSH")
            lease.renew()
            for node in nodes:
                node.execute("SCRIPT", "FLUSH")
        WAYS[way]()

    def test_a_full_memory_lets_holders_renew_and_release(
        self, nodes: list[Redis], way: str
    ) -> None:
        try:
            with own() as lease:
                for node in nodes:
                    node.execute("CONFIG", "SET", "maxmemory", "1")
                lease.renew()
            with pytest.raises(LockBackendError, match="OutOfMemory"):
                WAYS[way]()
        finally:
            for node in nodes:
                node.execute("CONFIG", "SET", "maxmemory", "0")
        assert WAYS[way]()[0] > lease.fencing_token

    @pytest.mark.parametrize("then", ["reset", "hang"])
    def test_the_answer_of_a_majority_is_lost(
        self, nodes: list[Redis], then: Literal["reset", "hang"], way: str
    ) -> None:
        """Ask again where the connection broke; where it hangs, raise, and leave nothing."""
        with ExitStack() as stack:
            proxies = [stack.enter_context(Proxy(node.port)) for node in majority(nodes)]
            urls = [f"redis://{proxy.host}:{proxy.port}/0" for proxy in proxies]
            locks.settings["own"]["LOCATION"] = urls + [node.url() for node in nodes[len(urls) :]]
            del locks["own"]
            tokens = WAYS[way]()
            elsewhere(lambda: own().acquire(wait=0))  # on connections that are there
            backend().force_release(NAME)
            lost = [proxy.fault(b"EVALSHA", then=then) for proxy in proxies]
            if then == "reset":
                tokens += WAYS[way]()
            else:
                with pytest.raises(LockBackendError):
                    WAYS[way]()
                for proxy in proxies:
                    proxy.mend()
                free_soon()
                tokens += WAYS[way]()
            for fault in lost:
                fault.wait()
            assert tokens == sorted(set(tokens))


def test_who_holds_and_how_the_nodes_vote(nodes: list[Redis]) -> None:
    with own() as lease:
        nodes[0].kill()
        lease.renew()
        info = backend().inspect(NAME)
        assert isinstance(info, QuorumInfo)
        assert list(info.votes) == [node.url() for node in nodes]
        first, *others = info.votes.values()
        assert first.startswith(("ConnectionError", "not asked"))
        assert all(f"held with token {lease.fencing_token}" in vote for vote in others)


def test_a_node_that_swallows_connections_is_tried_in_the_background(nodes: list[Redis]) -> None:
    """Pay for it at most once, not in each round."""
    nodes[0].pause()
    use(1)
    backend().close_idle()  # so that it has to be connected to again
    with own():  # this one may wait for it
        pass
    took = []
    for _ in range(5):
        started = time.monotonic()
        use(1)
        took.append(time.monotonic() - started)
    assert sorted(took)[2] < 0.5  # a connection is waited for for a second
    assert any(thread.name == "distlock-own_nodes" for thread in threading.enumerate())


if "redis" not in chosen():
    del test_who_holds_and_how_the_nodes_vote
    del test_a_node_that_swallows_connections_is_tried_in_the_background
