"""Sessions that end, and processes that stand still meanwhile: nobody is sure who must not be."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from django_distlock import LeaseLostError, lock, locks
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.backends.zookeeper.algorithm import Talk
from django_distlock.backends.zookeeper.entries import ZooKeeperEntry
from django_distlock.backends.zookeeper.handlers import Batch
from django_distlock.backends.zookeeper.requests import kinds
from django_distlock.core.values import Grant, Refusal
from django_distlock.testing.processes import Process
from tests.claims import claim, granted, soon, started
from tests.contract.connections import sockets_to
from tests.faults.storm import Guarded
from tests.faults.test_stopped import goes_on, holder
from tests.servers import ZooKeeper, watcher
from tests.zookeeper.tools import Opener, ask, entry_of, queue_of
from tests.zookeeper_servers import SESSION

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LONG = 20.0


def test_a_session_that_ends_ends_every_lease_at_once(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Have another client close the session, as an expiry does, and look at all that it held."""
    backend = opened(server.address, prefix=name, session=20.0)
    leases = [lock(f"{name}{n}", using=backend.alias, ttl=60).acquire() for n in range(3)]
    lost: list[str] = []
    for lease in leases:
        assert lease is not None
        lease.on_lost(lambda each: lost.append(each.name))
    expire(server, backend)
    soon(lambda: len(lost) == 3)
    for lease in leases:
        assert lease is not None
        with pytest.raises(LeaseLostError):
            lease.release()
    with lock(f"{name}0", using=backend.alias, wait=5):
        pass


def test_a_session_on_which_nothing_hangs_is_asked_for_seldom(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Ask the leader for each process that once had a lock no more often than need be."""
    backend = opened(server.address, prefix=name, session=4.0)
    asked: list[float] = []
    real = backend._session.send

    def send(*words: Any) -> Any:
        asked.append(time.monotonic())
        return real(*words)

    with lock(name, using=backend.alias), mock.patch.object(backend._session, "send", send):
        time.sleep(3.5)
    held = len(asked)
    time.sleep(1.0)  # the beat that was planned while it was held
    asked.clear()
    with mock.patch.object(backend._session, "send", send):
        time.sleep(2.0)
    assert held >= 4
    assert len(asked) <= 3


class Crossing:
    """The mutex of a session, which is entered when something else has happened."""

    def __init__(self, inner: Any, before: Callable[[], None]) -> None:
        self._inner, self._before = inner, before

    def __enter__(self) -> None:
        self._before()
        self._inner.__enter__()

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)


def test_a_connection_that_is_new_is_not_taken_for_the_one_to_be_cut(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """kazoo tells once only that it has connected anew: nobody would hear of it later."""
    backend = opened(server.address, prefix=name)
    with lock(name, using=backend.alias):
        pass
    session = backend._session
    connection, mutex = session._client._connection, session._mutex
    old = connection._socket
    other, peer = socket.socketpair()
    with other, peer:
        try:
            session._mutex = Crossing(mutex, lambda: setattr(connection, "_socket", other))  # type: ignore[assignment]
            session.cut()
        finally:
            session._mutex, connection._socket = mutex, old
    assert session.up
    with lock(name, using=backend.alias, wait=5):
        pass


def test_a_question_that_was_lost_costs_one_connection(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """kazoo may lose one that it was sent while it connected: the next beat asks anew."""
    backend = opened(server.address, prefix=name, session=4.0)
    keeper, session = backend._keeper, backend._session
    with lock(name, using=backend.alias), mock.patch.object(session, "cut") as cut:
        # By this thread: the answer to a question that is under way would take the mark away.
        keeper._asking, keeper._asked = True, backend.clock() - 10.0
        keeper._ask()
        assert cut.called
        time.sleep(1.0)
    assert cut.call_count == 1


def test_a_request_of_which_kazoo_was_not_told_delays_no_other(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """It sends one request for each byte that wakes it: after an interruption one is missing."""
    backend = opened(server.address, prefix=name, session=20.0)
    mine = lock(name, using=backend.alias)
    with mine:
        pass
    batch = Batch(1, backend.clock(), backend._session.id, lambda _: None)
    backend._session._client._queue.append(
        (kinds().Sync(backend._session._facts.base), *batch.answers_due)
    )
    began = time.monotonic()
    for _ in range(10):
        with mine:
            pass
    assert time.monotonic() - began < 5.0


def test_a_connection_that_was_cut_has_time_for_another(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Else a process that is short of time cuts each new one before anything is answered."""
    backend = opened(server.address, prefix=name, session=10.0)
    with lock(name, using=backend.alias):
        pass
    session = backend._session
    with session._mutex:
        session._sure = backend.clock() - 9.0
    assert session.doubtful()
    session.cut()
    assert not session.doubtful()
    with lock(name, using=backend.alias, wait=5):
        pass


def expire(server: ZooKeeper, backend: ZooKeeperBackend) -> None:
    """End a session as an expiry does, and wait until its client knows."""
    from kazoo.client import KazooClient

    session = backend._session.id
    thief = KazooClient(server.address, client_id=backend._session._client.client_id)
    thief.start()
    thief.stop()
    thief.close()
    soon(lambda: backend._session.up and backend._session.id != session)


def finished(backend: ZooKeeperBackend, talk: Talk[Any], requests: list[Any]) -> Any:
    """Carry the rest of an operation out, and return what it returns."""
    while True:
        answers = backend._session.ask(requests, 5.0)
        try:
            requests = talk.send(answers)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_that_is_read_when_its_session_has_ended_grants_nothing(
    server: ZooKeeper, opened: Opener, name: str, waits: bool
) -> None:
    """Stand still between the servers' answer and its being read, for longer than the session."""
    backend, other = opened(server.address, prefix=name), opened(server.address, prefix=name)
    mine, theirs = claim(backend, name), claim(other, name)
    if waits:
        granted(other, before := claim(other, name))
        assert isinstance(backend.try_acquire(mine, LONG), Refusal)
        assert backend.queue(mine, 0.01, None)
        assert other.release(before)
        soon(lambda: backend._ready(entry_of(backend, mine)))  # its turn has come
        talk = backend._algorithm.acquire(mine, join=True)
        expire(server, backend)
        token = granted(other, theirs)
        requests = next(talk)
    else:
        talk = backend._algorithm.acquire(mine, join=True)
        answers = backend._session.ask(next(talk), 5.0)
        expire(server, backend)
        token = granted(other, theirs)
        requests = talk.send(answers)
    assert isinstance(finished(backend, talk, requests), Refusal)
    assert granted(other, theirs) == token
    assert other.release(theirs)
    assert isinstance(backend.try_acquire(mine, LONG), Grant)
    assert backend.release(mine)


def test_a_waiter_that_was_stopped_for_longer_than_its_session(name: str) -> None:
    """Pass it by, and grant it nothing when it goes on before its turn comes again."""

    async def main() -> None:
        got: list[int | None] = []
        async with Process("sync", "zookeeper") as process:
            with lock(name, using="zookeeper", ttl=60):
                process.tell("acquire", name=name, wait=30, options={"ttl": 60})
                backend = locks["zookeeper"]
                assert isinstance(backend, ZooKeeperBackend)
                while len(queue_of(backend, name)) < 2:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                watcher.freeze(process.pid)  # and see it stopped: it might go on for a moment
            lease = await asyncio.to_thread(lock(name, using="zookeeper", wait=30).acquire)
            assert lease is not None
            os.kill(process.pid, signal.SIGCONT)
            reading = asyncio.create_task(asyncio.to_thread(process._read))
            await asyncio.sleep(0.3)
            assert not reading.done()
            await asyncio.to_thread(lease.release)
            got.append(await reading)
            await process.release(name)
        assert got[0] is not None
        assert got[0] > lease.fencing_token

    asyncio.run(main())


def test_a_lease_that_runs_out_while_it_is_renewed_is_not_renewed(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Believe the keeper that gave it up, not the answer that the node was there before."""
    backend = opened(server.address, prefix=name)
    mine = claim(backend, name, ttl=1.5)
    granted(backend, mine)
    talk = backend._algorithm.renew([mine])
    answers = backend._session.ask(next(talk), 5.0)
    soon(lambda: backend._entries.get(mine.owner) is None)
    with pytest.raises(StopIteration) as stop:
        talk.send(answers)
    assert stop.value.value == [False]


def test_a_node_of_a_session_that_has_ended_is_not_ours(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Make a node of our own beside one that bears our name, and remove that one (D7)."""
    backend, old = opened(server.address, prefix=name), opened(server.address, prefix=name)
    mine = claim(backend, name)
    first = granted(old, mine)
    # As if our request for it had been cut off, and the session had ended since.
    backend._entries.add(ZooKeeperEntry(mine, backend.facts.base, backend.clock() + 60))
    token = granted(backend, mine)
    assert token > first
    (node,) = queue_of(backend, name)
    stat = ask(backend, "Exists", f"{backend.facts.base}/{mine.key}/{node}", None)
    assert stat.ephemeralOwner == backend._session.id
    assert backend.release(mine)


def test_a_removed_node_is_a_lost_lease(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Tell the holder at its next renewal, and let waiters go on when theirs was removed (S14)."""
    backend = opened(server.address, prefix=name)
    holder, waiter = claim(backend, name), claim(backend, name)
    granted(backend, holder)
    backend.try_acquire(waiter, LONG)
    for node in queue_of(backend, name):
        assert ask(backend, "Delete", f"{backend.facts.base}/{holder.key}/{node}", -1) is True
    assert not backend.renew(holder)
    assert isinstance(backend.try_acquire(waiter, LONG), Grant)
    assert not backend.release(holder)
    assert backend.release(waiter)


@pytest.mark.parametrize("ttl", [0.6, 60.0])
def test_a_holder_that_is_stopped_for_longer_than_its_session(
    name: str, tmp_path: Path, ttl: float
) -> None:
    """Free its lock; it learns of it before it writes, and the fenced write rejects it."""
    with holder("zookeeper", name, ttl, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        with lock(name, using="zookeeper", wait=30) as lease:
            assert time.monotonic() - stopped < 1.5 * SESSION + 10.0
            assert Guarded(tmp_path).write(lease.fencing_token)
            told = dict.fromkeys(("before", "check", "renew", "release"), "LeaseLostError")
            assert goes_on(process) == told | {"written": False}
            lease.renew()


def test_a_closed_alias_leaves_no_session(server: ZooKeeper, opened: Opener, name: str) -> None:
    from django_distlock import locks

    backend = opened(server.address, prefix=name)
    granted(backend, mine := claim(backend, name))
    assert backend._session.id is not None
    session = f"0x{backend._session.id:x}"
    dump = server.ask("dump")
    assert session in dump
    assert mine.owner in dump
    locks[backend.alias].close()
    soon(lambda: session not in server.ask("dump"))
    assert mine.owner not in server.ask("dump")


def test_many_locks_and_waits_are_one_connection(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Share one client by all threads and loops of the process (G17)."""
    before = sockets_to(server.port)
    backend = opened(server.address, prefix=name)
    locked = [claim(backend, f"{name}{number}") for number in range(20)]
    for each in locked:
        granted(backend, each)
    threads = [
        started(partial(lock(each.name, using=backend.alias).acquire, wait=0.2)) for each in locked
    ]
    for thread in threads:
        thread.join(LONG)
    assert sockets_to(server.port) == before + 1
    for each in locked:
        assert backend.release(each)
