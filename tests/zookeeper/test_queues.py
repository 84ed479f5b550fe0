"""Who stands in the queue of a lock, who is woken, and what is asked of the server for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django_distlock import Lease, lock
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.core.values import Claim, Grant, Refusal
from django_distlock.testing.taps import tap
from tests.claims import claim, granted, soon, started
from tests.servers import ZooKeeper
from tests.zookeeper.tools import Opener, ask, queue_of

LONG = 20.0


def requests_of(backend: ZooKeeperBackend, work: Any) -> list[str]:
    """Return the kinds of the requests that were sent during some work, but for the keeper's."""
    sent: list[str] = []
    real = backend._session.send

    def send(requests: Any, done: Any) -> Any:
        sent.extend(type(each).__name__ for each in requests)
        return real(requests, done)

    backend._session.send = send  # type: ignore[method-assign]
    try:
        work()
    finally:
        backend._session.send = real  # type: ignore[method-assign]
    return [kind for kind in sent if kind != "Sync"]


@contextmanager
def held(backend: ZooKeeperBackend, name: str) -> Iterator[None]:
    """Have a lock held by nobody of this thread."""
    holder = claim(backend, name)
    granted(backend, holder)
    yield
    assert backend.release(holder)


def test_a_free_lock_is_one_round_trip_and_its_release_another(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    backend = opened(server.address)
    granted(backend, first := claim(backend, name))
    backend.release(first)
    mine = claim(backend, name)
    assert requests_of(backend, lambda: granted(backend, mine)) == ["Create2", "GetChildren"]
    assert requests_of(backend, lambda: backend.release(mine)) == ["Delete"]


def test_a_waiter_asks_for_five_things_at_most(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Make the node, read the queue, watch; read it again if two stood before; remove the node."""
    backend = opened(server.address)
    for ahead in (1, 3):
        before = [claim(backend, f"{name}{ahead}") for _ in range(ahead)]
        for each in before:
            backend.try_acquire(each, LONG)
        mine = claim(backend, f"{name}{ahead}")

        def wait(before: Any = before, mine: Any = mine) -> None:
            assert isinstance(backend.try_acquire(mine, LONG), Refusal)
            assert backend.queue(mine, 0.05, LONG)
            for _ in range(3):  # nothing was told, so nothing is asked
                assert isinstance(backend.try_acquire(mine, LONG), Refusal)
            with tap(backend, "renew"):
                for each in before:
                    backend.release(each)
            assert backend.queue(mine, 5.0, LONG)
            assert isinstance(backend.try_acquire(mine, LONG), Grant)
            backend.release(mine)

        kinds = requests_of(backend, wait)
        for _ in before:
            kinds.remove("Delete")
        looks = ["GetChildren"] if ahead > 1 else []
        assert kinds == ["Create2", "GetChildren", "GetData", *looks, "Delete"]


def test_a_release_wakes_exactly_one_of_a_thousand(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Count who is woken at each release; the others sleep on."""
    backend = opened(server.address, session=60.0)
    waiters, rounds = 1000, 30
    holder = claim(backend, name, ttl=600.0)
    granted(backend, holder)
    woken: list[int] = []

    async def main() -> None:
        queue_of = [claim(backend, name, ttl=600.0) for _ in range(waiters)]

        async def wait(number: int) -> None:
            entry = backend._entries.get(queue_of[number].owner)
            assert entry is not None
            while not backend._ready(entry):
                # For longer than it takes until the last of them waits, on a busy machine.
                await backend.aqueue(queue_of[number], 100.0, None)
            woken.append(number)

        waits = []
        for number, each in enumerate(queue_of):
            assert isinstance(await backend.atry_acquire(each, 5.0), Refusal)
            waits.append(asyncio.create_task(wait(number)))
        async with asyncio.timeout(60):
            while len(backend._entries._watches) < waiters:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        assert woken == []
        watches = server.count("zk_watch_count")
        assert watches >= waiters
        gone = holder
        for number in range(rounds):
            assert await backend.arelease(gone)
            async with asyncio.timeout(10):
                while len(woken) <= number:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert woken == list(range(number + 1))
            assert isinstance(await backend.atry_acquire(queue_of[number], 5.0), Grant)
            gone = queue_of[number]
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    started = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() <= started + 4  # waiting on the loop costs no thread


def test_those_who_come_and_go_leave_neither_nodes_nor_watches(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Have many brief waiters for one long holder (D8): one watch, and nothing in the queue."""
    backend = opened(server.address)
    with held(backend, name):
        before = server.count("zk_watch_count")
        for _ in range(20):
            assert lock(name, using=backend.alias).acquire(wait=0.01) is None
        assert len(queue_of(backend, name)) == 1
        assert server.count("zk_watch_count") <= before + 1
        assert len(backend._entries) == 1
        assert sum(map(len, backend._entries._watches.values())) == 0


def test_a_node_that_goes_between_being_seen_and_being_watched(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Leave no watch for a node that is gone (C13), and be woken at once."""
    backend = opened(server.address)
    holder, mine = claim(backend, name), claim(backend, name)
    granted(backend, holder)
    assert isinstance(backend.try_acquire(mine, LONG), Refusal)
    backend.release(holder)
    watches = server.count("zk_watch_count")
    began = time.monotonic()
    assert backend.queue(mine, LONG, LONG)
    assert time.monotonic() - began < 5.0
    assert server.count("zk_watch_count") <= watches
    granted(backend, mine)
    backend.release(mine)


def test_waiting_asks_nothing(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Keep to a ceiling of requests while waiting (C14)."""
    backend = opened(server.address)
    with held(backend, name):
        asked = requests_of(backend, lambda: lock(name, using=backend.alias).acquire(wait=1.5))
    assert len(asked) <= 5, asked


def test_a_wait_ends_in_time_though_it_is_woken_again_and_again(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Count the wait once, not from each wake-up (C17, V19)."""
    backend = opened(server.address)
    taken = []
    for _ in range(3):  # the fastest of them: the machine may be busy
        before = [claim(backend, name) for _ in range(6)]
        for each in before:
            backend.try_acquire(each, LONG)
        over = threading.Event()

        def leave(before: list[Claim], over: threading.Event) -> None:
            for each in reversed(before[1:]):  # each the one before the waiter
                if over.wait(0.2):
                    return
                backend.release(each)

        leaving = started(partial(leave, before, over))
        began = time.monotonic()
        assert lock(name, using=backend.alias).acquire(wait=0.7) is None
        taken.append(time.monotonic() - began)
        over.set()
        leaving.join()
        for each in before:
            backend.release(each)
    assert 0.7 <= min(taken) < 1.7


def test_two_who_only_try_do_not_hinder_each_other(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Try without waiting from two processes' clients (C12): what is refused leaves nothing."""
    backends = [opened(server.address), opened(server.address)]
    taken = [0, 0]

    def work(which: int) -> None:
        for _ in range(40):
            lease = lock(name, using=backends[which].alias).acquire(wait=0)
            if lease is not None:
                taken[which] += 1
                lease.release()

    threads = [started(partial(work, which)) for which in (0, 1)]
    for thread in threads:
        thread.join(LONG)
    assert sum(taken) > 0
    assert queue_of(backends[0], name) == []
    with lock(name, using=backends[0].alias, wait=0):
        pass


def test_tokens_rise_when_the_locks_node_is_made_anew(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Go by the change's number, for that of the node begins at 0 again (V20)."""
    backend = opened(server.address)
    tokens, numbers = [], []
    for _ in range(3):
        mine = claim(backend, name)
        tokens.append(granted(backend, mine))
        numbers.append(queue_of(backend, name)[0][-10:])
        backend.release(mine)
        path = f"{backend.facts.base}/{backend.key(name)}"
        assert ask(backend, "Delete", path, -1) is True
    assert tokens == sorted(set(tokens))
    assert numbers == ["0000000000"] * 3


def test_the_server_removes_locks_that_nobody_uses(name: str, opened: Opener) -> None:
    """Make containers, which vanish without racing anybody, and go on when one has."""
    with ZooKeeper(options=["-Dznode.container.checkIntervalMs=100"]) as server:
        backend = opened(server.address)
        mine = claim(backend, name)
        first = granted(backend, mine)
        path = f"{backend.facts.base}/{backend.key(name)}"
        time.sleep(0.3)
        assert ask(backend, "Exists", path, None) is not None  # somebody stands in it
        backend.release(mine)
        soon(lambda: ask(backend, "Exists", path, None) is None)
        assert granted(backend, mine) > first


def test_held_shows_the_waiters_in_order(server: ZooKeeper, opened: Opener, name: str) -> None:
    backend = opened(server.address, prefix=name)
    got: list[Lease | None] = []

    def stand(number: int) -> bool:
        return len(queue_of(backend, name)) == number

    with lock(name, using=backend.alias):
        threads = []
        for number in range(3):
            thread = threading.Thread(
                name=f"waiter {number}",
                target=lambda: got.append(lock(name, using=backend.alias).acquire(wait=LONG)),
            )
            thread.start()
            threads.append(thread)
            soon(partial(stand, number + 2))
        (info,) = backend.held()
        assert info.waiters == 3
        assert [each.thread for each in info.waiting] == ["waiter 0", "waiter 1", "waiter 2"]
        for thread in threads:
            thread.join(0.01)
    for _ in threads:
        soon(lambda: got)
        lease = got.pop(0)
        assert lease is not None
        lease.release()
    for thread in threads:
        thread.join(LONG)


def test_a_waiter_that_stopped_to_ask_is_passed_over(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Give a waiter's place up that nobody asks for, though its process lives."""
    backend = opened(server.address)
    holder, gone, mine = (claim(backend, name) for _ in range(3))
    granted(backend, holder)
    backend.try_acquire(gone, 1.0)
    began = time.monotonic()
    assert isinstance(backend.try_acquire(mine, LONG), Refusal)
    backend.release(holder)
    while isinstance(backend.try_acquire(mine, LONG), Refusal):
        assert time.monotonic() - began < 10.0
        backend.queue(mine, 1.0, None)
    assert time.monotonic() - began >= 1.0
    backend.release(mine)


def test_what_is_none_of_ours_is_left_alone(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Lock beside nodes that somebody else has put there."""
    backend = opened(server.address)
    mine = claim(backend, name)
    granted(backend, mine)
    from kazoo.security import OPEN_ACL_UNSAFE

    foreign = f"{backend.facts.base}/{backend.key(name)}/notes"
    ask(backend, "Create", foreign, b"foreign", OPEN_ACL_UNSAFE, 0)
    assert isinstance(backend.try_acquire(claim(backend, name), 0.0), Refusal)
    info = backend.inspect(name)
    assert info is not None
    assert info.waiters == 0
    backend.release(mine)
    assert backend.inspect(name) is None
    assert ask(backend, "Delete", foreign, -1) is True
