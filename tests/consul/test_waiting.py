"""Waiting in the queue: how many requests it takes, in what order, and who is passed over."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from django_distlock import Lease, Leases, Lock, LockBackendError, LockInfo, lock, lock_all
from django_distlock.core.values import Grant, Holder, HolderInfo, Refusal
from tests.claims import claim, granted, soon, started
from tests.consul.tools import Opener, asked, keys_of
from tests.servers import Consul


@pytest.mark.parametrize("behavior", ["delete", "release"])
def test_a_free_lock_is_two_requests(opened: Opener, server: Consul, behavior: str) -> None:
    """One takes it and one frees it, once the session is made."""
    backend = opened(server.url, BEHAVIOR=behavior)
    with lock("a", using=backend.alias):
        pass
    with asked(backend) as requests, lock("a", using=backend.alias):
        pass
    assert len(requests) == 2


def test_a_contended_lock_is_five_requests(opened: Opener, server: Consul) -> None:
    """However many wait, a hand-off costs five: and each waiter is woken once."""
    backend = opened(server.url)
    waiters = 12
    got: list[int] = []

    def turn() -> None:
        with lock("a", using=backend.alias, ttl=30, wait=30) as lease:
            got.append(lease.fencing_token)

    with lock("a", using=backend.alias, ttl=30) as first, asked(backend) as requests:
        began = time.monotonic()
        threads = []
        for number in range(1, waiters + 1):
            threads.append(started(turn))
            soon(lambda number=number: _waiting(server, backend) == number)  # type: ignore[misc]
        first.release()
        for thread in threads:
            thread.join(30)
        seconds = int(time.monotonic() - began + 0.2)
    assert len(got) == waiters
    assert got == sorted(got)
    # Whoever waits looks once more each second, and blocks anew. The first one's release, and the
    # mark of the queue that the last one removes, are two.
    assert len(requests) <= (5 + 2 * seconds) * waiters + 2
    assert keys_of(server, backend) == []


def _waiting(server: Consul, backend: object) -> int:
    from django_distlock.backends.consul import ConsulBackend

    assert isinstance(backend, ConsulBackend)
    return sum("/w/" in key for key in keys_of(server, backend))


def test_nobody_who_comes_new_is_before_those_in_line(opened: Opener, server: Consul) -> None:
    backend = opened(server.url)
    holder, early, late = (claim(backend, "a") for _ in range(3))
    granted(backend, holder)
    assert isinstance(backend.try_acquire(early, 20.0), Refusal)
    assert backend.release(holder)
    # Free, but there is a queue.
    assert isinstance(backend.try_acquire(late, 0.0), Refusal)
    assert isinstance(backend.try_acquire(late, 20.0), Refusal)
    granted(backend, early)
    assert backend.release(early)
    assert backend.queue(late, 1.0, 1.0)
    granted(backend, late)
    assert backend.release(late)
    assert keys_of(server, backend) == []


def test_held_shows_the_line_in_its_order(opened: Opener, server: Consul) -> None:
    """Show who waits, the first one first; the holder is none of them, however it got the lock."""
    backend = opened(server.url)
    notes = [HolderInfo(Holder(host=f"host-{number}", pid=number)).dumps() for number in range(4)]
    some = [claim(backend, "a")._replace(note=note) for note in notes]
    for each in some:
        backend.try_acquire(each, 20.0)
    for number in range(3):
        for info in (backend.inspect("a"), *backend.held("a")):
            assert isinstance(info, LockInfo)
            assert info.holder.pid == number
            assert [waiter.pid for waiter in info.waiting] == list(range(number + 1, 4))
            assert info.waiters == 3 - number
        assert backend.release(some[number])
        assert backend.queue(some[number + 1], 1.0, 1.0)
        granted(backend, some[number + 1])
    assert backend.release(some[3])


def test_a_waiter_that_gave_up_is_not_waited_for(opened: Opener, server: Consul) -> None:
    """Wake the one behind it; the last one's mark goes on to who is the last then."""
    backend = opened(server.url)
    holder, *line = (claim(backend, "a") for _ in range(4))
    granted(backend, holder)
    for each in line:
        assert isinstance(backend.try_acquire(each, 20.0), Refusal)
    backend.withdraw(line[2])
    backend.withdraw(line[0])
    info = backend.inspect("a")
    assert info is not None
    assert info.waiters == 1
    assert backend.release(holder)
    assert backend.queue(line[1], 1.0, 1.0)
    granted(backend, line[1])
    assert backend.release(line[1])
    assert keys_of(server, backend) == []


def test_a_dead_first_is_passed_over(opened: Opener, server: Consul) -> None:
    """Leave a free lock to the first in the queue for a second, and to the next one then."""
    backend = opened(server.url)
    holder, dead, living = (claim(backend, "a") for _ in range(3))
    granted(backend, holder)
    for each in (dead, living):
        assert isinstance(backend.try_acquire(each, 20.0), Refusal)
    assert backend.release(holder)
    tries = 0
    while not isinstance(backend.try_acquire(living, 20.0), Grant):
        backend.queue(living, 1.0, 1.0)
        tries += 1
        assert tries < 5
    # It lives after all: it stands at the end of the queue.
    assert isinstance(backend.try_acquire(dead, 20.0), Refusal)
    assert backend.release(living)
    assert backend.queue(dead, 1.0, 1.0)
    granted(backend, dead)
    assert backend.release(dead)
    assert keys_of(server, backend) == []


def test_a_mark_that_was_left_behind_bars_nobody(opened: Opener, server: Consul) -> None:
    """Take a free lock though a queue is marked in which nobody stands; the mark goes with it."""
    backend = opened(server.url)
    for limit in (0.0, 1.0):
        one = claim(backend, "a")
        paths = f"{backend._folder}{one.key[:40]}"
        server.ask("PUT", f"/v1/kv/{paths}/queue", "left behind")
        granted(backend, one, limit)
        assert backend.release(one)
        assert keys_of(server, backend) == []


def test_more_waiters_than_may_block(opened: Opener, server: Consul) -> None:
    """Serve those, too, for whom there is no blocking query left."""
    backend = opened(server.url)
    got: list[Lease] = []
    mutex = threading.Lock()

    def turn() -> None:
        with lock("a", using=backend.alias, ttl=60, wait=60) as lease, mutex:
            got.append(lease)

    with lock("a", using=backend.alias, ttl=60):
        threads = [started(turn) for _ in range(60)]
        soon(lambda: _waiting(server, backend) == 60, 30)
    for thread in threads:
        thread.join(60)
    assert len(got) == 60
    assert keys_of(server, backend) == []


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_more_waiters_than_the_agent_allows_connections(
    opened: Opener, way: str, tls: bool
) -> None:
    """Whoever is turned away asks again, and leaves connections to those that renew."""
    few = "limits { http_max_conns_per_client = 10 }"
    with Consul(tls=tls, options=["-hcl", few]) as server:
        options = {"CA_FILE": server.certificate} if tls else {}
        backend = opened(server.url, COMMAND_TIMEOUT=20, **options)
        names = [f"a{number}" for number in range(20)]
        held = lock_all(*names, using=backend.alias, ttl=6).acquire()
        assert held is not None
        first: Leases = held
        patient = [lock(name, using=backend.alias, ttl=60, wait=60) for name in names]

        def release_later() -> None:
            time.sleep(8)  # which is longer than the ttl
            first.check()
            first.release()

        async def wait_on_loop(each: Lock) -> None:
            async with each:
                pass

        async def main() -> None:
            waiting = [asyncio.create_task(wait_on_loop(each)) for each in patient]
            await asyncio.to_thread(release_later)
            await asyncio.gather(*waiting)

        def wait_in_thread(each: Lock) -> None:
            with each:
                pass

        if way == "async":
            asyncio.run(main())
        else:
            with ThreadPoolExecutor(len(patient)) as pool:
                waiting = [pool.submit(wait_in_thread, each) for each in patient]
                release_later()
                for thread in waiting:
                    thread.result(60)


def test_what_has_never_answered_is_no_agent(opened: Opener) -> None:
    """Another program's port, say: that is an error at once, however long the wait."""

    def turn_away() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        started(turn_away)
        backend = opened(f"http://127.0.0.1:{listener.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(LockBackendError, match="http_max_conns_per_client"):
            lock("a", using=backend.alias).acquire(wait=60)
        assert time.monotonic() - began < 30
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_of_many_waiters_of_a_process_one_watches(opened: Opener, server: Consul, way: str) -> None:
    """The others are told by it; whoever gives up reads no more than the mark of the queue."""
    backend = opened(server.url)
    waiters = 30
    patient = lock("a", using=backend.alias, ttl=30, wait=60)

    async def wait_on_loop() -> None:
        async with patient:
            pass

    async def main() -> None:
        tasks = [asyncio.create_task(wait_on_loop()) for _ in range(waiters)]
        await asyncio.to_thread(all_wait)
        for task in tasks[waiters // 2 :]:
            task.cancel()
        await asyncio.wait(tasks)

    def wait_in_thread() -> None:
        with patient:
            pass

    def all_wait() -> None:
        soon(lambda: _waiting(server, backend) == waiters, 30)
        with asked(backend) as requests:
            time.sleep(2.0)
        # One that blocks each second, and a look of each now and then.
        assert len(requests) <= waiters
        first.release()

    held = lock("a", using=backend.alias, ttl=60).acquire()
    assert held is not None
    first: Lease = held
    if way == "async":
        asyncio.run(main())
    else:
        threads = [started(wait_in_thread) for _ in range(waiters)]
        all_wait()
        for thread in threads:
            thread.join(60)
    assert keys_of(server, backend) == []


def test_a_lapsed_holder_is_passed_over_by_whoever_watched(opened: Opener, server: Consul) -> None:
    """Take the lock of a holder in whose session others are held, when its ttl is over."""
    backend, other = opened(server.url, prefix="same"), opened(server.url, prefix="same")
    kept, expired = claim(backend, "kept"), claim(backend, "a", ttl=2.0)
    granted(backend, kept)
    token = granted(backend, expired)
    second = claim(other, "a")
    first_refusal = other.try_acquire(second, 20.0)
    assert isinstance(first_refusal, Refusal)
    assert first_refusal.remaining is not None
    assert 0 < first_refusal.remaining <= 2.0
    assert other.queue(second, first_refusal.remaining + 0.01, None)
    assert granted(other, second) > token
    assert backend.renew(expired) is False
    assert backend.release(expired) is False
    assert backend.renew(kept) is True
    assert other.release(second)
    assert backend.release(kept)


def test_a_renewal_is_seen_by_who_watches(opened: Opener, server: Consul) -> None:
    """Start the watcher's count anew with each renewal: also when it looks just once."""
    backend, other = opened(server.url, prefix="seen"), opened(server.url, prefix="seen")
    mine, second = claim(backend, "a", ttl=2.4), claim(other, "a")
    granted(backend, mine)
    for _ in range(3):
        assert isinstance(other.try_acquire(second, 0.0), Refusal)
        threading.Event().wait(1.0)
        assert backend.renew(mine)
    assert isinstance(other.try_acquire(second, 0.0), Refusal)
    assert backend.release(mine)
    granted(other, second)
    assert other.release(second)
