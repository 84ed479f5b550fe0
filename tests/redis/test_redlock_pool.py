"""Redlock's pools: nodes that owe answers, interrupted operations, more waiters than places."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from django_distlock import Lock, LockBackendError, LockInfo, lock, locks
from django_distlock.backends.redlock import RedlockBackend, pool, runner
from django_distlock.backends.redlock.connection import NodeConnection
from django_distlock.backends.redlock.inspect import QuorumInfo
from django_distlock.backends.redlock.rounds import Answers, Round, script, waiting_node
from tests.backends.tools import lock_alias
from tests.redlock import NODES
from tests.servers import chosen

BACKEND = "django_distlock.backends.redlock.RedlockBackend"
NAME = "on a client"


def own(wait: float = 0) -> Lock:
    """Return the lock of these tests."""
    return lock(NAME, using="own", ttl=30.0, wait=wait)


def backend() -> RedlockBackend:
    """Return the alias's backend."""
    found = locks["own"]
    assert isinstance(found, RedlockBackend)
    return found


async def once(way: str, wait: float = 0) -> None:
    """Take and free the lock, in a thread or on this event loop."""
    if way == "async":
        async with own(wait):
            pass
    else:
        await asyncio.to_thread(in_thread, wait)


def in_thread(wait: float = 0) -> None:
    """Take and free the lock, in this thread."""
    with own(wait):
        pass


def start(way: str) -> threading.Thread:
    """Have a thread wait for the lock, in either mode."""
    thread = threading.Thread(target=lambda: asyncio.run(once(way, 20.0)))
    thread.start()
    return thread


def soon(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def the_alias() -> Iterator[None]:
    """Give each test an alias on the five servers of this run; all of them are well at the end."""
    with lock_alias("own", BACKEND=BACKEND, LOCATION=[node.url() for node in NODES], PREFIX="r"):
        try:
            yield
        finally:
            for node in NODES:
                node.resume()


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.usefixtures("the_alias")
class TestPool:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    def test_nodes_that_went_on_after_a_long_silence(
        self, way: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Read what they have answered since, rather than say that they were silent."""
        monkeypatch.setattr(runner, "PATIENCE", 0.05)

        async def main() -> None:
            await once(way)
            for node in NODES[:3]:
                node.pause()
            with pytest.raises(LockBackendError):
                await once(way)
            for node in NODES[:3]:
                node.resume()
            for node in NODES[:3]:
                assert node.execute("PING") == "PONG"
            await once(way, 5.0)

        asyncio.run(main())

    def test_nodes_that_are_silent_still_are_connected_to_anew(
        self, way: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runner, "PATIENCE", 0.0)

        async def main() -> None:
            await once(way)
            NODES[0].pause()
            for _ in range(3):
                await once(way, 5.0)
            NODES[0].resume()
            await once(way, 5.0)

        asyncio.run(main())

    def test_a_node_that_owes_much_is_not_asked(
        self, way: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ask it again when it has gone on."""
        monkeypatch.setattr(runner, "OWED", 2)
        monkeypatch.setattr(runner, "PATIENCE", 100.0)  # nor is it connected to anew

        def inspected() -> LockInfo | None:
            with own(5.0):
                return backend().inspect(NAME)

        async def ainspected() -> LockInfo | None:
            async with own(5.0):
                return await backend().ainspect(NAME)

        async def votes() -> str:
            info = await (ainspected() if way == "async" else asyncio.to_thread(inspected))
            assert isinstance(info, QuorumInfo)
            return info.votes[NODES[0].url()]

        async def main() -> None:
            await once(way)
            NODES[0].pause()
            said = [await votes() for _ in range(3)]
            assert "owes 2 answers" in said[-1], said
            NODES[0].resume()
            assert NODES[0].execute("PING") == "PONG"
            deadline = time.monotonic() + 10
            while not (await votes()).startswith("held"):
                assert time.monotonic() < deadline

        asyncio.run(main())

    def test_a_node_that_stood_still_keeps_no_grant_of_a_released_lock(self, way: str) -> None:
        """Tell it again of releases, as it reads them and the requests in any order."""
        node, names = NODES[0], backend()._names
        keys = {
            names.lock(backend().key(f"{number} {turn}"))
            for number in range(8)
            for turn in range(5)
        }

        def holds() -> set[str]:
            return keys & set(node.execute("ZRANGE", names.index, "0", "-1").split())

        def work(number: int) -> None:
            for turn in range(5):
                with lock(f"{number} {turn}", using="own", ttl=60, wait=5):
                    time.sleep(0.002)  # others go on, on the connections of this one

        async def work_on_loop(number: int) -> None:
            for turn in range(5):
                async with lock(f"{number} {turn}", using="own", ttl=60, wait=5):
                    await asyncio.sleep(0.002)

        async def main() -> None:
            if way == "async":
                await asyncio.gather(*map(work_on_loop, range(8)))
            else:
                await asyncio.gather(*(asyncio.to_thread(work, each) for each in range(8)))

        asyncio.run(main())
        node.pause()
        asyncio.run(main())
        node.resume()
        soon(lambda: not backend().cluster.debts.of(0))
        assert not holds()

    def test_an_owner_who_asks_again_is_not_freed_by_an_older_release(self) -> None:
        debts, key = backend().cluster.debts, backend()._names.lock("a")
        asked = Round(script("acquire"), [(key, "index", "owner", 1)], 1.0)
        freed = Round(script("release"), [(key, "index", "owner", "")], 1.0)
        silent: Answers = [TimeoutError(), [1], [1], [1], [1]]
        debts.note(asked, silent)
        assert debts.note(freed, silent)
        assert debts.of(0) == [(key, "index", "owner", "")]
        assert debts.of(1) == []
        debts.told(0, debts.of(0))
        assert debts.of(0)  # the request may be read yet
        debts.begin(asked)
        assert not debts.of(0)

    def test_who_waits_passes_by_a_node_that_owes_answers(self, way: str) -> None:
        node = NODES[waiting_node(backend().key(NAME)) % len(NODES)]
        with own():
            node.pause()
            waiter = start(way)
            time.sleep(0.1)
        waiter.join(20)
        assert not waiter.is_alive()

    def test_more_waiters_than_targets(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those for whom there is no place look again and again, and are granted it, too."""
        monkeypatch.setattr(pool, "WAITING", 1)

        async def all_of_one_loop() -> None:
            await asyncio.gather(*(once(way, 20.0) for _ in range(3)))

        with own():
            if way == "async":
                waiters = [threading.Thread(target=lambda: asyncio.run(all_of_one_loop()))]
                waiters[0].start()
            else:
                waiters = [start(way) for _ in range(3)]
            time.sleep(0.2)
        for waiter in waiters:
            waiter.join(20)
            assert not waiter.is_alive()

    def test_pool_that_are_too_many_are_closed(
        self, way: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pool, "IDLE", 0)
        asyncio.run(once(way))
        assert not backend()._pool._idle
        assert not any(loop._idle for _, loop, _ in backend()._async_pool._loops._loops.values())

    @pytest.mark.parametrize("verb", ["receive", "wait"])
    def test_an_operation_that_is_interrupted(self, verb: str) -> None:
        """Close its client, on which answers are owed that nobody will read; leave no lock."""
        asyncio.run(once("sync"))
        interrupted = mock.patch.object(NodeConnection, verb, side_effect=KeyboardInterrupt)
        if verb == "receive":
            with interrupted, pytest.raises(KeyboardInterrupt):
                own().acquire()
        else:
            holder = own().acquire()
            assert holder
            seen: list[BaseException] = []

            def wait() -> None:
                try:
                    own(20.0).acquire()
                except KeyboardInterrupt as error:
                    seen.append(error)

            with interrupted:
                waiter = threading.Thread(target=wait)
                waiter.start()
                waiter.join(20)
            assert len(seen) == 1
            holder.release()
        soon(lambda: not own().locked())
        asyncio.run(once("sync", 5.0))

    def test_a_backend_closed_while_somebody_waits(self, way: str) -> None:
        """Have the waiter's client closed when it is given back."""
        old = backend()
        lease = own().acquire()
        assert lease
        waiter = start(way)
        soon(lambda: any("blocked_clients:1" in str(node.execute("INFO")) for node in NODES))
        old.close_idle()
        old._pool.close()
        lease.release()
        waiter.join(20)
        assert not waiter.is_alive()
        assert not old._pool._idle
