"""Lost answers, cut connections, a server that restarts or hangs: nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, lock
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.core.values import Grant, Refusal
from tests.claims import claim, granted, soon, started
from tests.proxy import Proxy
from tests.servers import ZooKeeper
from tests.zookeeper.tools import Opener, entry_of, queue_of

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LONG = 20.0


def through(
    proxy: Proxy, opened: Opener, name: str, session: float = 4.0, **options: Any
) -> ZooKeeperBackend:
    """Open an alias through the proxy, and make it connect."""
    backend = opened(f"127.0.0.1:{proxy.port}", prefix=name, session=session, **options)
    warm = claim(backend, "warm")
    granted(backend, warm)
    backend.release(warm)
    return backend


def test_the_answer_to_a_creation_is_lost(proxy: Proxy, opened: Opener, name: str) -> None:
    """Find the node by its owner, and make no second one (D6, D7)."""
    backend = through(proxy, opened, name)
    mine = claim(backend, name)
    fault = proxy.fault(mine.owner.encode())
    token = granted(backend, mine, limit=5.0)
    fault.wait()
    assert len(queue_of(backend, name)) == 1
    assert granted(backend, mine) == token
    assert backend.release(mine)
    assert queue_of(backend, name) == []


def test_the_answer_to_a_creation_is_lost_on_an_event_loop(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    backend = through(proxy, opened, name)
    mine = claim(backend, name)
    fault = proxy.fault(mine.owner.encode())

    async def main() -> None:
        assert isinstance(await backend.atry_acquire(mine, 5.0), Grant)
        assert await backend.arenew(mine)
        assert await backend.arelease(mine)

    asyncio.run(main())
    fault.wait()
    assert queue_of(backend, name) == []


def test_the_creation_is_answered_and_the_queue_is_not(
    server: ZooKeeper, proxy: Proxy, opened: Opener, name: str
) -> None:
    """Read the queue before the lock is granted: the node alone says nothing (A1)."""
    backend = through(proxy, opened, name)
    other = opened(f"127.0.0.1:{server.port}", prefix=name)
    theirs, mine = claim(other, name), claim(backend, name)
    granted(other, theirs)
    # That the lock's node is there is the first answer; then come path and facts of the new one.
    path = f"{backend.facts.base}/{backend.key(name)}/{mine.owner}-0000000001"
    fault = proxy.fault(mine.owner.encode(), keep=20 + 20 + 4 + len(path) + 68)
    answer = backend.try_acquire(mine, 5.0)
    fault.wait()
    assert isinstance(answer, Refusal)
    assert entry_of(backend, mine).ahead
    backend.withdraw(mine)
    assert other.release(theirs)


@pytest.mark.parametrize("to", ["request", "answer"])
@pytest.mark.parametrize("keep", [0, 3])
def test_a_creation_that_hangs_is_withdrawn(
    proxy: Proxy, opened: Opener, name: str, to: Any, keep: int
) -> None:
    """Give up in time, and leave no node when the connection was cut in the middle (D5, D6)."""
    backend = through(proxy, opened, name, session=20.0, COMMAND_TIMEOUT=2.5)
    fault = proxy.fault(backend.key(name).encode(), to=to, keep=keep, then="hang")
    with pytest.raises(LockBackendError, match="Look at"):
        lock(name, using=backend.alias).acquire(wait=0)
    fault.wait()
    proxy.mend()
    soon(lambda: backend._session.up)
    soon(lambda: queue_of(backend, name) == [])
    with lock(name, using=backend.alias, wait=5):
        pass
    soon(lambda: len(backend._entries) == 0)  # the answer to the removal comes after it


def test_a_refusal_whose_clean_up_is_cut_off(proxy: Proxy, opened: Opener, name: str) -> None:
    """Remove the node of who was refused also when the connection ended before that (D5)."""
    backend = through(proxy, opened, name)
    other = claim(backend, name)
    granted(backend, other)
    mine = claim(backend, name)
    answer: list[object] = []
    real = backend._session.send

    def send(requests: Any, done: Any) -> Any:
        if type(requests[0]).__name__ == "Delete":
            backend._session.send = real  # type: ignore[method-assign]
            proxy.reset()
        return real(requests, done)

    backend._session.send = send  # type: ignore[method-assign]
    answer.append(backend.try_acquire(mine, 0.0))
    assert isinstance(answer[0], Refusal)
    assert len(queue_of(backend, name)) == 1
    assert backend.release(other)


def test_the_answer_to_a_release_is_lost(proxy: Proxy, opened: Opener, name: str) -> None:
    """Ask again, and say what is so: the lock was freed by us (A17)."""
    backend = through(proxy, opened, name)
    mine = claim(backend, name)
    granted(backend, mine)
    fault = proxy.fault(mine.owner.encode())
    assert backend.release(mine)
    fault.wait()
    assert queue_of(backend, name) == []
    assert not backend.release(mine)


def test_a_connection_that_was_cut_for_less_than_the_session(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    """Keep the leases, by the same session, and the waiter's place in the queue (C11, E5)."""
    backend = through(proxy, opened, name, session=10.0)
    session = backend._session.id
    got: list[Lease | None] = []
    lease = lock(name, using=backend.alias).acquire()
    assert lease is not None
    thread = started(lambda: got.append(lock(name, using=backend.alias).acquire(wait=LONG)))
    soon(lambda: len(backend._entries._watches) == 1)
    before = queue_of(backend, name)
    proxy.cut()
    soon(lambda: not backend._session.up)
    lease.check()
    assert 0 < lease.remaining() < 10.0  # no longer the ttl alone
    time.sleep(0.3)
    proxy.mend()
    soon(lambda: backend._session.up)
    assert queue_of(backend, name) == before
    assert backend._session.id == session
    lease.check()
    lease.renew()
    lease.release()
    thread.join(LONG)
    (theirs,) = got
    assert theirs is not None
    assert theirs.fencing_token > lease.fencing_token
    theirs.release()


def test_a_holder_that_is_cut_off_knows_before_another_has_its_lock(
    server: ZooKeeper, proxy: Proxy, opened: Opener, name: str
) -> None:
    """Tell of the loss when the session may have ended, and long before kazoo does (V18, E4)."""
    backend, other = through(proxy, opened, name, session=2.0), opened(server.address, prefix=name)
    lost: list[float] = []
    lease = lock(name, using=backend.alias, ttl=60).acquire()
    assert lease is not None
    told = threading.Event()

    def callback(lost_one: Lease) -> None:
        # A callback may use locks (C19): this one frees what was lost.
        with pytest.raises(LeaseLostError):
            lost_one.release()
        told.set()

    lease.on_lost(callback)
    proxy.silence()

    def watch() -> None:
        while not lease.lost:
            time.sleep(0.005)
        lost.append(time.monotonic())

    watching = started(watch)
    theirs = lock(name, using=other.alias).acquire(wait=LONG)
    taken = time.monotonic()
    assert theirs is not None
    watching.join(LONG)
    assert lost[0] < taken
    assert told.wait(LONG)
    with pytest.raises(LeaseLostError):
        lease.check()
    theirs.check()
    proxy.mend()
    soon(lambda: backend._session.up)
    assert len(queue_of(other, name)) == 1
    theirs.release()
    # And the first one's process goes on with a session of its own.
    with lock(name, using=backend.alias, wait=5) as again:
        assert again.fencing_token > theirs.fencing_token


def test_a_server_that_is_restarted_with_its_data(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Keep holder and waiter over a kill (-9) and a start; leave nothing."""
    backend = opened(server.address, prefix=name, session=30.0, COMMAND_TIMEOUT=30)
    got: list[Lease | None] = []
    lease = lock(name, using=backend.alias, ttl=60).acquire()
    assert lease is not None
    thread = started(lambda: got.append(lock(name, using=backend.alias).acquire(wait=60)))
    soon(lambda: len(backend._entries._watches) == 1)
    server.kill()
    server.start()
    soon(lambda: backend._session.up)
    lease.renew()
    lease.release()
    thread.join(LONG)
    (theirs,) = got
    assert theirs is not None
    assert theirs.fencing_token > lease.fencing_token
    theirs.release()
    assert queue_of(backend, name) == []


def test_a_server_that_hangs_is_not_waited_for(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    backend = opened(server.address, prefix=name, session=20.0, COMMAND_TIMEOUT=1.5)
    with lock("warm", using=backend.alias):
        pass
    server.pause()
    began = time.monotonic()
    try:
        with pytest.raises(LockBackendError, match=r"no (answer in|connection to)"):
            lock(name, using=backend.alias).acquire(wait=LONG)
        assert time.monotonic() - began < LONG / 2
    finally:
        server.resume()
    soon(lambda: queue_of(backend, name) == [])
    with lock(name, using=backend.alias, wait=5):
        pass
