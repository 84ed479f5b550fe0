"""Waiting: threads of a process, and tasks of a loop, share one mailbox and one connection."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

import pytest

from django_distlock import Lease, LockBackendError, lock
from django_distlock.backends.redis import client
from django_distlock.backends.redis.client import AsyncNodeClient
from tests.claims import claim, granted, soon, started
from tests.meddling import meanwhile
from tests.proxy import Proxy
from tests.redis.tools import Opener
from tests.servers import Redis

LONG = 30.0
MANY = 150


# What the tests ask by connections of their own, whose end the server may not have noticed yet.
OURS = ("client|list", "keys", "llen", "info", "command")


def clients(server: Redis) -> int:
    """Return how many connections the server has, but for those that the tests ask by."""
    asked = re.findall(r" cmd=(\S+)", server.execute("CLIENT", "LIST"))
    return sum(not each.startswith(OURS) for each in asked)


@pytest.fixture
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no answer for a late one, for which more connections are opened: the machine is busy."""
    monkeypatch.setattr(client, "GROWTH", LONG)


@pytest.mark.usefixtures("_prompt")
def test_many_threads_that_wait_take_few_connections(
    alone: Redis, opened: Opener, name: str
) -> None:
    backend = opened(alone.url())
    mine = claim(backend, name)
    granted(backend, mine)
    served: list[int] = []

    def turn() -> None:
        with lock(name, using=backend.alias, wait=LONG):
            served.append(clients(alone) if len(served) % 10 == 0 else 0)

    threads = [started(turn) for _ in range(MANY)]
    soon(lambda: _waiters(alone) == MANY)
    assert clients(alone) <= 8
    backend.release(mine)
    for thread in threads:
        thread.join(LONG)
    assert len(served) == MANY
    assert max(served) <= 8


@pytest.mark.usefixtures("_prompt")
def test_many_tasks_that_wait_take_few_connections(alone: Redis, opened: Opener, name: str) -> None:
    backend = opened(alone.url())
    served: list[int] = []

    async def turn() -> None:
        async with lock(name, using=backend.alias, wait=LONG):
            served.append(1)

    async def main() -> None:
        async with lock(name, using=backend.alias):
            turns = [asyncio.create_task(turn()) for _ in range(MANY)]
            while await asyncio.to_thread(_waiters, alone) < MANY:
                await asyncio.sleep(0.02)
            assert await asyncio.to_thread(clients, alone) <= 8
        await asyncio.gather(*turns)

    asyncio.run(main())
    assert len(served) == MANY


def _waiters(server: Redis) -> int:
    keys = server.execute("KEYS", "*:q:*").split()
    return sum(int(server.execute("LLEN", each)) for each in keys)


@pytest.mark.parametrize("options", [{}, {"SCRIPTING": False}], ids=["scripts", "transactions"])
@pytest.mark.parametrize("ttl", [0.9, 30.0])
def test_each_of_many_names_is_told(
    server: Redis, opened: Opener, name: str, options: dict[str, bool], ttl: float
) -> None:
    """Also those of the waiters that do not read the mailbox."""
    backend = opened(server.url(), prefix=str(options), **options)
    held = [claim(backend, f"{name}{number}") for number in range(8)]
    got: dict[str, Lease | None] = {}

    def wait(each: str) -> None:
        got[each] = lock(each, using=backend.alias, ttl=ttl, renew=False, wait=LONG).acquire()

    for each in held:
        granted(backend, each)
    threads = [started(partial(wait, each.name)) for each in held]
    time.sleep(0.3)
    assert not got
    for each in reversed(held):
        backend.release(each)
        soon(partial(got.__contains__, each.name))
        assert got[each.name] is not None
    for thread in threads:
        thread.join(LONG)


class _Stop(BaseException):
    pass


@contextmanager
def alarm(after: float, handle: Callable[[], None]) -> Iterator[None]:
    """Have a signal come in ``after`` seconds."""

    def handler(number: int, frame: FrameType | None) -> None:
        handle()

    timer = signal.setitimer(signal.ITIMER_REAL, 0)  # pytest's
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_another_reads_on_where_the_reader_is_interrupted(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url())
    mine = claim(backend, name)
    granted(backend, mine)
    got: list[Lease | None] = []

    def interrupt() -> None:
        raise _Stop

    waiting = lock(name, using=backend.alias, wait=LONG)
    second = threading.Timer(0.2, lambda: got.append(waiting.acquire()))
    second.start()
    with alarm(0.5, interrupt), pytest.raises(_Stop):
        waiting.acquire()
    begun = time.monotonic()
    backend.release(mine)
    second.join(LONG)
    assert time.monotonic() - begun < LONG / 2
    (lease,) = got
    assert lease is not None
    lease.release()


def test_a_handler_on_the_readers_thread_waits_by_itself(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url())
    mine, other = claim(backend, name), claim(backend, f"{name}2")
    granted(backend, mine)
    granted(backend, other)
    got: list[Lease | None] = []

    def handle() -> None:
        threading.Timer(0.2, backend.release, [other]).start()
        lease = lock(f"{name}2", using=backend.alias, wait=5).acquire()
        got.append(lease)
        if lease is not None:
            lease.release()
        backend.release(mine)

    with alarm(0.3, handle), lock(name, using=backend.alias, wait=LONG):
        pass
    assert got[0] is not None


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancellation_waits_for_the_answer(
    proxy: Proxy, opened: Opener, name: str, times: int
) -> None:
    """Else the server could grant the lock after the task has ended."""
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0")

    async def cancelled(work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        proxy.delay(0.5)  # the answer comes a second later
        await asyncio.sleep(0.1)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()
        proxy.delay(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main() -> None:
        async with lock(f"{name}-warm", using=backend.alias):
            pass
        before = proxy.accepted
        await cancelled(lock(name, using=backend.alias).aacquire())
        assert await backend.ainspect(name) is None
        lease = await lock(name, using=backend.alias).aacquire()
        assert lease is not None
        await cancelled(backend.arelease(lease._hold.claim))
        assert await backend.ainspect(name) is None
        assert proxy.accepted == before  # the answers were read, and nothing dropped

    asyncio.run(main())


def test_a_cancelled_wait_ends_at_once(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())

    async def main() -> None:
        async with lock(name, using=backend.alias):
            task = asyncio.create_task(lock(name, using=backend.alias, wait=LONG).aacquire())
            await asyncio.sleep(0.3)
            begun = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - begun < LONG / 2
            info = await backend.ainspect(name)
            assert info is not None
            assert info.waiters == 0

    asyncio.run(main())


def test_more_connections_are_opened_where_all_are_slow(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0", MAX_CONNECTIONS=client.EAGER + 2)
    with lock(name, using=backend.alias):
        pass
    proxy.delay(0.3)
    threads = [started(lambda: backend.inspect(name)) for _ in range(client.EAGER + 6)]
    for thread in threads:
        thread.join(LONG)
    assert proxy.accepted == client.EAGER + 2


def test_who_gets_no_connection_is_told_the_option(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url(), MAX_CONNECTIONS=2)
    threads, loop = backend._clients, backend._aclients
    assert isinstance(threads, client.NodeClient)
    assert isinstance(loop, AsyncNodeClient)
    lent = [threads.lend(1.0) for _ in range(2)]
    with pytest.raises(LockBackendError, match="Raise MAX_CONNECTIONS in OPTIONS"):
        lock(name, using=backend.alias).acquire(wait=0)
    threads.give_back(lent[0])
    with lock(name, using=backend.alias):
        pass

    async def main() -> None:
        connections = await loop.loops.mine()
        lent = [await connections.lend(1.0) for _ in range(2)]
        with pytest.raises(LockBackendError, match="Raise MAX_CONNECTIONS in OPTIONS"):
            await lock(name, using=backend.alias).aacquire(wait=0)
        waiting = asyncio.create_task(lock(name, using=backend.alias).aacquire())
        await asyncio.sleep(0.05)
        await connections.give_back(lent[0])
        lease = await waiting
        assert lease is not None
        await lease.arelease()

    asyncio.run(main())


def test_all_queue_again_where_the_server_has_forgotten_them(
    alone: Redis, opened: Opener, name: str
) -> None:
    """As after FLUSHALL, or where it took the process for dead."""
    backend = opened(alone.url())
    mine = claim(backend, name)
    granted(backend, mine)
    served: list[int] = []

    def turn() -> None:
        with lock(name, using=backend.alias, wait=LONG):
            served.append(1)

    threads = [started(turn) for _ in range(6)]
    soon(lambda: _waiters(alone) == 6)
    # At once: a waiter that is known, and not in the queue, does not queue again.
    alone.execute("DEL", *alone.execute("KEYS", "*:[aq]:*").split())
    soon(lambda: _waiters(alone) == 6)  # long before each asks by itself
    backend.release(mine)
    for thread in threads:
        thread.join(LONG)
    assert len(served) == 6


def test_waiters_join_while_others_are_counted(opened: Opener, name: str, alone: Redis) -> None:
    """No mutex is held for that: what is copied is copied at once."""
    backend = opened(alone.url())
    mailbox = backend._mailbox(b"here")
    kept = [
        mailbox.join(claim(backend, f"{name}:{number}"), 0.0, lambda: None) for number in range(500)
    ]
    come = [claim(backend, f"{name}:{number}") for number in range(500, 600)]

    def come_and_go() -> None:
        for waiter in [mailbox.join(each, 0.0, lambda: None) for each in come]:
            mailbox.leave(waiter)

    with meanwhile(come_and_go):
        for _ in range(1000):
            assert len(mailbox.waiting()) >= len(kept)
