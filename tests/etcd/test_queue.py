"""Waiting in the queue of a lock: nobody is woken in vain, left out, or served twice."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise

import pytest

from django_distlock import Lease, LockInfo, lock
from django_distlock.core.values import Claim
from tests.claims import claim, granted, refused, soon, started
from tests.etcd.tools import Opener, entry_of, tally
from tests.servers import Etcd

LONG = 20.0


def test_a_release_before_the_watch_begins_is_not_missed(
    server: Etcd, opened: Opener, name: str
) -> None:
    """C8. Between the refusal and the watch, which is from now on, the key is looked for again."""
    backend = opened(server.url)
    mine, waiter = claim(backend, name), claim(backend, name)
    granted(backend, mine)
    refused(backend, waiter)
    assert backend.release(mine)
    began = time.monotonic()
    assert backend.queue(waiter, 10.0, LONG)
    assert time.monotonic() - began < 5
    granted(backend, waiter)
    assert backend.release(waiter)


def test_a_release_before_the_watch_begins_on_an_event_loop(
    server: Etcd, opened: Opener, name: str
) -> None:
    backend = opened(server.url)
    mine, waiter = claim(backend, name), claim(backend, name)

    async def main() -> None:
        await backend.atry_acquire(mine, LONG)
        await backend.atry_acquire(waiter, LONG)
        assert await backend.arelease(mine)
        began = time.monotonic()
        assert await backend.aqueue(waiter, 10.0, LONG)
        assert time.monotonic() - began < 5
        await backend.atry_acquire(waiter, LONG)
        assert await backend.arelease(waiter)

    asyncio.run(main())


def test_only_the_one_ahead_is_watched(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    claims = [claim(backend, name) for _ in range(4)]
    granted(backend, claims[0])
    for before, each in pairwise(claims):
        refused(backend, each)
        assert entry_of(backend, each).ahead == entry_of(backend, before).keys.own
    # Somebody in the middle gives up: who is behind watches whom that one watched.
    assert backend.withdraw(claims[2]) is False
    assert backend.queue(claims[3], 10.0, LONG)
    refused(backend, claims[3])
    assert entry_of(backend, claims[3]).ahead == entry_of(backend, claims[1]).keys.own
    for each, held in ((claims[3], False), (claims[1], False), (claims[0], True)):
        assert backend.release(each) is held


@pytest.mark.parametrize("waiters", [2, 8])
def test_an_acquisition_is_five_requests_whoever_waits(
    waiters: int, server: Etcd, opened: Opener, name: str
) -> None:
    """Join, watch, look for the key, look for the turn, release. And once a second of waiting."""
    backend = opened(server.url)
    gate = threading.Barrier(waiters + 1)
    done: list[Lease] = []

    def turn() -> None:
        lease = lock(name, using=backend.alias).acquire(wait=LONG)
        assert lease is not None
        done.append(lease)
        lease.release()

    def work() -> None:
        with lock(f"{name}{threading.get_ident()}", using=backend.alias):
            gate.wait(LONG)  # so that each has a lease by now
        gate.wait(LONG)  # and has given its lock back
        gate.wait(LONG)
        turn()

    threads = [started(work) for _ in range(waiters)]
    mine = lock(name, using=backend.alias).acquire()
    assert mine is not None
    gate.wait(LONG)
    gate.wait(LONG)
    with tally(backend) as counted:
        began = time.monotonic()
        gate.wait(LONG)
        soon(lambda: _line(backend.inspect(name)) == waiters)
        soon(lambda: counted["watch"] == waiters)  # else one finds its turn come without
        looked = counted["range"], counted["timetolive"]
        mine.release()
        for thread in threads:
            thread.join(LONG)
        seconds = int(time.monotonic() - began)
    assert len(done) == waiters
    sent = counted.total() - sum(looked) - 1
    assert sent <= (5 + 2 * seconds) * waiters
    assert counted["watch"] == waiters


def test_a_hand_over_wakes_one(server: Etcd, opened: Opener, name: str) -> None:
    """The watches of the others say nothing."""
    backend = opened(server.url)
    claims = [claim(backend, name) for _ in range(5)]
    granted(backend, claims[0])
    for each in claims[1:]:
        refused(backend, each)
    threads = [started(lambda each=each: backend.queue(each, LONG, LONG)) for each in claims[1:]]  # type: ignore[misc]
    soon(lambda: all(entry_of(backend, each).stream for each in claims[1:]))
    assert backend.release(claims[0])
    threads[0].join(LONG)
    time.sleep(0.2)
    assert [thread.is_alive() for thread in threads] == [False, True, True, True]
    for each in claims[1:]:
        backend.release(each)
    for thread in threads:
        thread.join(LONG)


def test_the_line_is_shown_in_order(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url, prefix=name)
    mine = lock(name, using=backend.alias).acquire()
    assert mine is not None

    def turn() -> None:
        lease = lock(name, using=backend.alias).acquire(wait=LONG)
        assert lease is not None
        lease.release()

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=turn, name=f"waiter-{number}", daemon=True))
        threads[-1].start()
        soon(lambda number=number: _line(backend.inspect(name)) == number + 1)  # type: ignore[misc]
    for info in (backend.inspect(name), *backend.held()):
        assert isinstance(info, LockInfo)
        assert info.fencing_token == mine.fencing_token
        assert info.waiters == 3
        assert [holder.thread for holder in info.waiting] == ["waiter-0", "waiter-1", "waiter-2"]
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert 0 < (info.expires_at - info.acquired_at).total_seconds() < 60
    mine.release()
    for thread in threads:
        thread.join(LONG)
    assert list(backend.held()) == []


def _line(info: object) -> int:
    assert isinstance(info, LockInfo)
    return info.waiters or 0


def test_held_goes_on_from_page_to_page(
    server: Etcd, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With lines that a page cuts, and one that is longer than a page."""
    monkeypatch.setattr("django_distlock.backends.etcd.inspect.PAGE", 4)
    backend = opened(server.url, prefix=name)
    expected = {f"{name}{number}": number % 7 for number in range(9)}
    claims: list[Claim] = []
    for each, waiters in expected.items():
        claims += [claim(backend, each) for _ in range(waiters + 1)]
        granted(backend, claims[-waiters - 1])
        for waiter in claims[len(claims) - waiters :]:
            refused(backend, waiter)
    assert {info.name: info.waiters for info in backend.held()} == expected
    for each_claim in claims:
        backend.release(each_claim)
    assert list(backend.held()) == []


def test_a_waiter_whose_lease_ended_is_not_granted_by_it(
    server: Etcd, opened: Opener, name: str
) -> None:
    """E1, C10. Its key is gone: it join the queue anew, behind those who came meanwhile."""
    backend = opened(server.url)
    mine, waiter, other = (claim(backend, name) for _ in range(3))
    granted(backend, mine)
    refused(backend, waiter)
    refused(backend, other)
    server.ask("lease/revoke", {"ID": entry_of(backend, waiter).lease.id})
    assert backend.release(mine)
    refused(backend, waiter)
    token = granted(backend, other)
    assert backend.release(other)
    assert granted(backend, waiter) > token
    info = backend.inspect(name)
    assert info is not None
    assert info.owner == waiter.owner
    assert backend.release(waiter)


def test_a_waiter_keeps_its_entry_for_longer_than_its_ttl(
    server: Etcd, opened: Opener, name: str
) -> None:
    """C9, E1. Its key stays in the queue while it waits, and has a whole ttl at its turn."""
    backend = opened(server.url)
    mine = lock(name, using=backend.alias).acquire()
    assert mine is not None
    got: list[Lease | None] = []
    brief = lock(name, using=backend.alias, ttl=4.0, renew=False)
    thread = started(lambda: got.append(brief.acquire(wait=LONG)))
    soon(lambda: _line(backend.inspect(name)) == 1)
    (entry,) = [each for each in backend._algorithm.entries._all.values() if not each.granted]
    soon(lambda: entry.created > 0)  # the store shows the key before its answer is read
    created = entry.created
    time.sleep(2.5)
    mine.release()
    thread.join(LONG)
    (theirs,) = got
    assert theirs is not None
    assert theirs.fencing_token == created
    assert theirs.remaining() > 1.6  # what were left of a ttl from the start of the wait


def test_a_compaction_under_a_watch(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    mine, waiter = claim(backend, name), claim(backend, name)
    granted(backend, mine)
    refused(backend, waiter)
    backend.queue(waiter, 0.05, LONG)
    assert entry_of(backend, waiter).stream is not None
    revision = server.ask("kv/put", {"key": "YQ=="})["header"]["revision"]
    server.ask("kv/compaction", {"revision": revision, "physical": True})
    thread = started(lambda: backend.release(mine))
    began = time.monotonic()
    assert backend.queue(waiter, 10.0, LONG)
    assert time.monotonic() - began < 5
    thread.join(LONG)
    granted(backend, waiter)
    backend.release(waiter)


def test_watches_that_cannot_be_opened_are_done_without(
    server: Etcd, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask now and then, and keep their order."""
    monkeypatch.setattr("django_distlock.backends.etcd.WAITING", 1)
    backend = opened(server.url)
    mine = lock(name, using=backend.alias).acquire()
    assert mine is not None
    order: list[int] = []

    def turn(number: int) -> None:
        lease = lock(name, using=backend.alias).acquire(wait=LONG)
        assert lease is not None
        order.append(number)
        lease.release()

    threads = []
    for number in range(3):
        threads.append(started(lambda number=number: turn(number)))  # type: ignore[misc]
        soon(lambda number=number: _line(backend.inspect(name)) == number + 1)  # type: ignore[misc]
    mine.release()
    for thread in threads:
        thread.join(LONG)
    assert order == [0, 1, 2]


def test_closing_the_alias_closes_its_watches(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    mine, waiter = claim(backend, name), claim(backend, name)
    granted(backend, mine)
    refused(backend, waiter)
    backend.queue(waiter, 0.05, LONG)
    stream = entry_of(backend, waiter).stream
    assert stream is not None
    backend.close()
    assert not stream._open
    assert backend.release(waiter) is False
    assert backend.release(mine)


def test_a_watch_of_a_task_is_closed_by_whoever_withdraws_it(
    server: Etcd, opened: Opener, name: str
) -> None:
    """On its event loop, whose transports are not to be touched by another thread."""
    backend = opened(server.url)
    mine, waiter = claim(backend, name), claim(backend, name)
    granted(backend, mine)

    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)  # which tells of that
        await backend.atry_acquire(waiter, LONG)
        assert await backend.aqueue(waiter, 0.05, LONG)
        stream = entry_of(backend, waiter).stream
        assert stream is not None
        assert await asyncio.to_thread(backend.release, waiter) is False
        for _ in range(100):
            if not stream._open:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it is open still")

    asyncio.run(main())
    assert backend.release(mine)
