"""How waiters for a quorum's lock are woken, and what they leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from django_distlock import Lock, LockTimeoutError, lock, locks
from django_distlock.backends.redlock import RedlockBackend, waiting
from django_distlock.backends.redlock.rounds import waiting_node
from django_distlock.backends.redlock.waiting import FEW, SAFETY, SELDOM, LocalWaiters, turn
from django_distlock.core.flow import QUEUE_LIMIT
from tests.backends.tools import lock_alias
from tests.redlock import NODES
from tests.servers import Redis, chosen

BACKEND = "django_distlock.backends.redlock.RedlockBackend"
NAME = "waited for"


def own(wait: float = 5.0) -> Lock:
    """Return the lock of these tests."""
    return lock(NAME, using="own", ttl=20.0, wait=wait)


def backend() -> RedlockBackend:
    """Return the alias's backend."""
    found = locks["own"]
    assert isinstance(found, RedlockBackend)
    return found


def key() -> str:
    """Return the key of the lock on a node."""
    return f"distlock:1:redlock:{backend().key(NAME)}"


def blocked(node: Redis) -> int:
    """Return how many clients block on a node."""
    said = str(node.execute("INFO", "clients"))
    (line,) = [line for line in said.splitlines() if line.startswith("blocked_clients:")]
    return int(line.partition(":")[2])


def soon(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Waiter:
    """A thread that waits for the lock, by one of both modes, and notes when it got it."""

    def __init__(self, way: str) -> None:
        self.granted = 0.0
        self.thread = threading.Thread(target=self._sync if way == "sync" else self._async)
        self.thread.start()

    def _sync(self) -> None:
        with own():
            self.granted = time.monotonic()

    def _async(self) -> None:
        async def wait() -> None:
            async with own():
                self.granted = time.monotonic()

        asyncio.run(wait())

    def join(self) -> float:
        """Wait for its end; return when it was granted the lock."""
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert self.granted
        return self.granted


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def the_alias() -> Iterator[None]:
    """Give each test an alias on the five servers of this run."""
    with lock_alias("own", BACKEND=BACKEND, LOCATION=[node.url() for node in NODES], PREFIX="w"):
        yield


@pytest.mark.usefixtures("the_alias")
class TestWaiting:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    @property
    def waiting_node(self) -> Redis:
        """The node at which they wait."""
        return NODES[waiting_node(backend().key(NAME)) % len(NODES)]

    def test_a_release_wakes_one_that_waits(
        self, way: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Be woken by the release, where looks of the waiter's own come much later, mostly."""
        monkeypatch.setattr(waiting, "SAFETY", 10.0)
        taken = []
        for _ in range(5):
            with own():
                waiter = Waiter(way)
                soon(lambda: blocked(self.waiting_node) == 1)
                released = time.monotonic()
            taken.append(waiter.join() - released)
        assert sorted(taken)[2] < QUEUE_LIMIT / 3, taken

    def test_who_waits_is_counted(self, way: str) -> None:
        """Count a waiter as long as it waits, and no longer."""
        with own():
            waiter = Waiter(way)
            soon(lambda: backend()._local_waiters._waiting[backend().key(NAME)] == 1)
        waiter.join()
        assert not backend()._local_waiters._waiting

    def test_all_wait_at_one_node(self, way: str) -> None:
        with own():
            waiters = [Waiter(way) for _ in range(3)]
            wanted = [3 if node is self.waiting_node else 0 for node in NODES]
            soon(lambda: [blocked(node) for node in NODES] == wanted)
        for waiter in waiters:
            waiter.join()

    def test_a_hint_that_is_lost_costs_a_safety_poll(self, way: str) -> None:
        """Take the hint away, as one who was woken and died does."""
        with own():
            waiter = Waiter(way)
            soon(lambda: blocked(self.waiting_node) == 1)
            for node in NODES:
                # Nobody knows any more that somebody waits, so that the release leaves no hint.
                node.execute("DEL", f"{key()}:waits")
            released = time.monotonic()
        assert waiter.join() - released < SAFETY + 0.5

    def test_who_waited_leaves_nothing_for_long(self, way: str) -> None:
        with own():
            waiter = Waiter(way)
            soon(lambda: blocked(self.waiting_node) == 1)
        waiter.join()
        for node in NODES:
            for what in ("waits", "hints"):
                left = int(node.execute("PTTL", f"{key()}:{what}"))
                assert left == -2 or 0 <= left <= 1000, (what, left)
        assert blocked(self.waiting_node) == 0

    def test_who_does_not_wait_is_not_noted(self) -> None:
        for node in NODES:
            node.execute("FLUSHALL")
        with own():
            seen = []
            other = threading.Thread(target=lambda: seen.append(own(wait=0).acquire()))
            other.start()
            other.join()
            assert seen == [None]
            for node in NODES:
                assert node.execute("EXISTS", f"{key()}:waits") == "0"

    def test_the_wait_is_kept(self, way: str) -> None:
        """End in time, though the server looks for ended blocks only now and then."""

        def in_time() -> None:
            if way == "sync":
                with own(wait=0.3):
                    pass
                return

            async def wait() -> None:
                async with own(wait=0.3):
                    pass

            asyncio.run(wait())

        def attempt() -> None:
            started = time.monotonic()
            with pytest.raises(LockTimeoutError):
                in_time()
            taken.append(time.monotonic() - started)

        taken: list[float] = []
        with own():
            for _ in range(3):  # the fastest of them: the machine may be busy
                other = threading.Thread(target=attempt)
                other.start()
                other.join()
        assert 0.29 < min(taken) < 0.3 + 0.5

    def test_another_node_is_the_waiting_node_when_that_one_is_down(self, way: str) -> None:
        number = waiting_node(backend().key(NAME)) % len(NODES)
        backend().cluster.nodes[number].down = ConnectionError("as if it were")
        with own():
            waiter = Waiter(way)
            soon(lambda: blocked(NODES[number - 1]) == 1)
            assert blocked(NODES[number]) == 0
            released = time.monotonic()
        assert waiter.join() - released < SAFETY + 0.5


def test_a_turn_ends_with_the_wait() -> None:
    assert 0.8 * SAFETY <= turn("k", 1.0, None).seconds <= SAFETY
    assert turn("k", 1.0, 0.05).seconds == 0.05
    assert not turn("k", 1.0, 0.05).is_whole
    assert turn("k", 1.0, 5.0).is_whole


def test_of_many_waiters_each_asks_more_seldom() -> None:
    """Keep the nodes from being asked in vain by hundreds, and the note alive that they wait."""
    assert 0.8 * 2 * SAFETY <= turn("k", 1.0, None, 2 * FEW).seconds <= 2 * SAFETY
    assert SELDOM * 0.8 * SAFETY <= turn("k", 1.0, None, 1000).seconds <= SELDOM * SAFETY
    assert SELDOM * SAFETY * 1000 < waiting._NOTED
    assert turn("k", 0.1, None, 1000).seconds <= 0.12


def test_a_crowd_is_counted_by_its_name() -> None:
    crowd = LocalWaiters()
    with crowd.joined("a") as first, crowd.joined("a") as second, crowd.joined("b") as other:
        assert (first, second, other) == (1, 2, 1)
    with crowd.joined("a") as again:
        assert again == 1
    assert not crowd._waiting
