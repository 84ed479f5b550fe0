"""Threads share the connections of the process; and connections that are not what they were."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from django_distlock import Lease, lock
from django_distlock.core.values import Grant
from tests.backends.tools import elsewhere
from tests.claims import claim, granted
from tests.proxy import Proxy
from tests.redis.tools import Opener
from tests.servers import Redis

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


@contextmanager
def handler_of_alarms(handle: object, after: float) -> Iterator[None]:
    """Have a signal come in ``after`` seconds."""
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    before = signal.signal(signal.SIGALRM, handle)  # type: ignore[arg-type]
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_a_signals_handler_may_use_locks_while_its_thread_waits(
    server: Redis, opened: Opener, name: str
) -> None:
    """As a program does that lets go of its locks on SIGTERM."""
    backend = opened(server.url())
    other = claim(backend, name)
    assert elsewhere(lambda: granted(backend, other))
    mine = lock(f"{name}-mine", using=backend.alias).acquire()
    assert mine
    said: list[object] = []

    def handle(number: int, frame: FrameType | None) -> None:
        taken = lock(f"{name}-free", using=backend.alias, wait=0).acquire()
        assert taken
        taken.release()
        mine.release()
        said.append("done")

    started = time.monotonic()
    with handler_of_alarms(handle, 0.3):
        assert lock(name, using=backend.alias, wait=1.0).acquire() is None
    assert time.monotonic() - started < 6
    assert said == ["done"]
    assert backend.inspect(f"{name}-mine") is None
    backend.release(other)


def test_new_threads_open_no_new_connections(alone: Redis, opened: Opener, name: str) -> None:
    """As those of a server have it that makes a thread for each request."""
    backend = opened(alone.url())

    def use() -> None:
        with lock(name, using=backend.alias):
            pass

    use()
    before = connections_made(alone)
    for _ in range(20):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert connections_made(alone) - before <= 2  # one is that of the question itself


def connections_made(server: Redis) -> int:
    stats = server.execute("INFO", "stats")
    line = next(each for each in stats.splitlines() if each.startswith("total_connections_rec"))
    return int(line.partition(":")[2])


def test_renewals_need_no_connection_of_their_own(alone: Redis, opened: Opener, name: str) -> None:
    """Else a server that takes no more clients would end the leases of those it has."""
    backend = opened(alone.url())
    with lock(name, using=backend.alias, ttl=3) as lease:
        time.sleep(1.3)  # the watchdog has its thread and connection
        before = connections_made(alone)
        time.sleep(2.5)
        lease.check()
        assert connections_made(alone) - before <= 1


@pytest.mark.parametrize("cluster", [False, True])
def test_many_leases_are_renewed_over_a_distance(
    proxy: Proxy, opened: Opener, name: str, cluster: bool
) -> None:
    """All in one write, however many there are."""
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0")
    way = backend._scripted
    assert way is not None
    way._one_server = not cluster  # by as many scripts as there are tags
    claims = [claim(backend, f"{name}{number}") for number in range(200)]
    for each in claims:
        granted(backend, each)
    proxy.delay(0.1)
    started = time.monotonic()
    assert all(backend.renew_many(claims))
    assert time.monotonic() - started < 8.0  # 64 round trips took 13
    proxy.mend()
    for each in claims:
        backend.release(each)


@MODES
def test_a_connection_that_was_forgotten_in_silence(
    proxy: Proxy, opened: Opener, name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old connection gives no answer, a new one does: no error is told."""
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0", COMMAND_TIMEOUT=3)

    async def use() -> None:
        async with lock(name, using=backend.alias, ttl=30):
            await asyncio.sleep(1.2)  # no longer fresh
            proxy.forget()

    if mode == "async":
        asyncio.run(use())
        return
    with lock(name, using=backend.alias, ttl=30):
        time.sleep(1.2)
        proxy.forget()
    assert backend.inspect(name) is None


@MODES
def test_a_wait_begins_on_no_connection_that_was_forgotten(
    proxy: Proxy, opened: Opener, name: str, mode: str
) -> None:
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0")
    mine = claim(backend, name)
    granted(backend, mine)
    waiter = claim(backend, name)

    async def use() -> None:
        await backend.atry_acquire(waiter, 5.0)
        await asyncio.sleep(1.2)  # no longer fresh
        proxy.forget()
        threading.Timer(0.3, backend.release, [mine]).start()
        assert await backend.aqueue(waiter, 5.0, 20.0)
        assert isinstance(await backend.atry_acquire(waiter, 5.0), Grant)
        await backend.arelease(waiter)

    if mode == "async":
        asyncio.run(use())
        return
    backend.try_acquire(waiter, 5.0)
    time.sleep(1.2)
    proxy.forget()
    threading.Timer(0.3, backend.release, [mine]).start()
    assert backend.queue(waiter, 5.0, 20.0)
    assert isinstance(backend.try_acquire(waiter, 5.0), Grant)
    backend.release(waiter)


@MODES
def test_a_server_that_is_no_master_any_more_is_asked_for_again(
    opened: Opener, name: str, mode: str
) -> None:
    """Behind a name that leads to another server by now."""
    with (
        Redis(persistent=False) as first,
        Redis(persistent=False) as second,
        Proxy(first.port) as proxy,
    ):
        backend = opened(f"redis://127.0.0.1:{proxy.port}/0")

        def fail_over() -> None:
            proxy.target = (proxy.target[0], second.port)  # for new connections
            first.execute("REPLICAOF", "127.0.0.1", str(second.port))

        async def use() -> None:
            for _ in range(2):
                async with lock(name, using=backend.alias, wait=0):
                    pass
                fail_over()

        if mode == "async":
            asyncio.run(use())
            return
        for _ in range(2):
            with lock(name, using=backend.alias, wait=0):
                pass
            fail_over()


def test_a_script_that_meets_a_moved_key_is_run_again(server: Redis, opened: Opener) -> None:
    from redis.exceptions import ResponseError, TryAgainError

    backend = opened(server.url())
    moved = "Script attempted to access a non local key in a cluster node script"
    for error in (ResponseError(moved), TryAgainError("Multiple keys request during rehashing")):
        assert backend.is_conflict(error)
    assert not backend.is_conflict(ResponseError("WRONGTYPE"))


@MODES
def test_a_release_whose_answer_was_lost_is_a_release(
    proxy: Proxy, opened: Opener, name: str, mode: str
) -> None:
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0")
    leases: list[Lease] = []

    async def use() -> None:
        async with lock(name, using=backend.alias, ttl=30) as lease:
            leases.append(lease)
            proxy.fault(b"EVALSHA", to="answer")

    if mode == "async":
        asyncio.run(use())
    else:
        with lock(name, using=backend.alias, ttl=30) as lease:
            leases.append(lease)
            proxy.fault(b"EVALSHA", to="answer")
    assert not leases[0].lost
    assert backend.inspect(name) is None
