"""Waiting: the queue, the direct hand-off, the death of those who wait, and the safety poll."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from django_distlock import Lease, lock
from django_distlock.backends.redis import scripts
from django_distlock.backends.redis.records import keys_of, short_owner
from django_distlock.core.values import Claim, Grant, Refusal
from tests.claims import claim, granted, started
from tests.redis.tools import Opener, calls, keys
from tests.servers import Redis

LONG = 20.0


def test_a_release_hands_over_to_the_first(
    server: Redis, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "_GRANT", 15_000)  # ms: more than the steps of this test take
    backend = opened(server.url())
    mine, first, second = (claim(backend, name) for _ in range(3))
    before = granted(backend, mine)
    for waiter in (first, second):
        answer = backend.try_acquire(waiter, LONG)
        assert isinstance(answer, Refusal)
        assert answer.queue
    assert backend.release(mine)
    info = backend.inspect(name)
    assert info is not None
    assert info.owner == first.owner
    assert info.fencing_token is not None
    assert info.fencing_token > before
    assert info.waiters == 1
    # A newcomer does not come before the one whose turn it is, and who has yet to claim it.
    assert isinstance(backend.try_acquire(claim(backend, name), 0.0), Refusal)
    started = time.monotonic()
    assert backend.queue(first, LONG, LONG)
    assert time.monotonic() - started < LONG / 2
    answer = backend.try_acquire(first, LONG)
    assert isinstance(answer, Grant)
    assert answer.fencing_token == info.fencing_token
    assert backend.release(first)
    assert granted(backend, second) > info.fencing_token
    assert backend.release(second)


def test_what_is_not_claimed_goes_on_to_the_next(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    mine, dead, living = (claim(backend, name) for _ in range(3))
    granted(backend, mine)
    for waiter in (dead, living):
        backend.try_acquire(waiter, LONG)
    assert backend.release(mine)
    begun = time.monotonic()
    while isinstance(answer := backend.try_acquire(living, LONG), Refusal):
        assert time.monotonic() - begun < LONG / 2
        assert backend.queue(living, 1.0, LONG)
    # Who comes too late has lost his turn, and stands at the end again.
    late = backend.try_acquire(dead, LONG)
    assert isinstance(late, Refusal)
    assert late.queue
    assert backend.release(living)
    assert granted(backend, dead) > answer.fencing_token
    assert backend.release(dead)


def test_a_waiter_that_gave_up_when_its_turn_came_passes_it_on(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url())
    mine, first, second = (claim(backend, name) for _ in range(3))
    granted(backend, mine)
    for waiter in (first, second):
        backend.try_acquire(waiter, LONG)
    backend.release(mine)
    backend.withdraw(first)
    info = backend.inspect(name)
    assert info is not None
    assert info.owner == second.owner
    granted(backend, second)
    assert backend.release(second)


def test_the_first_is_next_when_a_holder_is_gone(
    server: Redis, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.backends.redis.scripts._PRESENCE", 60_000)
    backend = opened(server.url())
    mine, dead, first, second = (claim(backend, name) for _ in range(4))
    before = granted(backend, mine)
    keys = keys_of("distlock:1", mine.key)
    for waiter in (dead, first, second):
        backend.try_acquire(waiter, LONG)
    presence = (keys.base + b"a:" + short_owner(dead.owner)).decode()
    server.execute("PEXPIRE", presence, "0")
    server.execute("PEXPIRE", keys.record.decode(), str(600_000))  # the retention: no ttl is left
    # The second asks first: it finds the lock free, and wakes the one before it.
    assert isinstance(backend.try_acquire(second, LONG), Refusal)
    info = backend.inspect(name)
    assert info is not None
    assert info.owner == first.owner
    assert granted(backend, first) > before
    assert backend.release(first)
    assert granted(backend, second) > before
    assert backend.release(second)


def test_a_hand_over_takes_few_commands(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    rounds, workers = 6, 6
    ready = threading.Barrier(workers)

    def work() -> None:
        mine = lock(name, using=backend.alias, wait=LONG)
        ready.wait(LONG)
        for _ in range(rounds):
            with mine:
                pass

    before = calls(server)
    threads = [started(work) for _ in range(workers)]
    for thread in threads:
        thread.join(LONG)
    after = calls(server)
    spent = sum(after[each] - before.get(each, 0) for each in ("evalsha", "blpop"))
    assert spent <= 5 * rounds * workers


@pytest.mark.parametrize("options", [{}, {"SCRIPTING": False}], ids=["scripts", "transactions"])
def test_a_waiter_is_woken_and_does_not_poll(
    server: Redis, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    backend = opened(server.url(), prefix=str(options), **options)
    mine = claim(backend, name)
    granted(backend, mine)
    waiter = lock(name, using=backend.alias)
    got: list[Lease | None] = []
    thread = started(lambda: got.append(waiter.acquire(wait=LONG)))
    while int(server.info("blocked_clients")) == 0:
        assert thread.is_alive()
    begun = time.monotonic()
    assert backend.release(mine)
    thread.join(LONG)
    assert time.monotonic() - begun < LONG / 2
    (lease,) = got
    assert lease is not None
    lease.release()


def test_more_tasks_than_connections_may_wait(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url(), MAX_CONNECTIONS=2)
    served: list[int] = []

    async def turn(number: int) -> None:
        async with lock(name, using=backend.alias, wait=LONG):
            served.append(number)

    async def main() -> None:
        lease = await lock(name, using=backend.alias).aacquire()
        assert lease is not None
        turns = [asyncio.create_task(turn(number)) for number in range(8)]
        await asyncio.sleep(0.1)
        await lease.arelease()
        await asyncio.gather(*turns)

    asyncio.run(main())
    assert sorted(served) == list(range(8))


def test_a_killed_connection_ends_no_wait(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    mine = claim(backend, name)
    granted(backend, mine)
    got: list[Lease | None] = []
    thread = started(lambda: got.append(lock(name, using=backend.alias).acquire(wait=LONG)))
    for _ in range(3):
        while int(server.info("blocked_clients")) == 0:
            assert thread.is_alive()
        server.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    backend.release(mine)
    thread.join(LONG)
    assert [lease is not None for lease in got] == [True]
    assert got[0] is not None
    got[0].release()


def test_an_attempt_that_comes_after_its_withdrawal_gets_nothing(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url())
    mine, waiter = claim(backend, name), claim(backend, name)
    granted(backend, mine)
    backend.try_acquire(waiter, LONG)
    assert backend._scripted is not None
    attempt = backend._scripted.go_on(waiter, b"mailbox")
    backend.withdraw(waiter)
    # As when the server reads what was sent with a wait, after the waiter has gone.
    for held in (True, False):
        before = _about(server, waiter)
        left, note, queued = backend._clients.ask(attempt, 1.0)
        assert (left, note, queued) == (0, b"", 0)
        assert _about(server, waiter) == before
        if held:
            assert backend.release(mine)
    assert backend.inspect(name) is None


def test_the_lease_counts_from_before_the_wait(
    server: Redis, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.backends.redis.scripts._PRESENCE", 60_000)
    monkeypatch.setattr("django_distlock.backends.redis.waiting.SAFETY", LONG)  # it asks once
    backend = opened(server.url())
    mine, waiter = claim(backend, name), claim(backend, name, ttl=10)
    granted(backend, mine)
    backend.try_acquire(waiter, LONG)
    asked = time.monotonic()
    timer = threading.Timer(0.5, backend.release, [mine])
    timer.start()
    answer = backend.queue(waiter, LONG, LONG)
    timer.join()
    assert isinstance(answer, Grant)
    assert answer.asked is not None
    assert asked <= answer.asked <= asked + 0.25
    assert backend.release(waiter)


def _about(server: Redis, waiter: Claim) -> list[str]:
    """Return the keys of a claim's name and of its wait: those of other tests end meanwhile."""
    parts = keys_of("", waiter.key).digest.decode(), short_owner(waiter.owner).decode()
    return [key for key in keys(server) if key.endswith(parts)]
