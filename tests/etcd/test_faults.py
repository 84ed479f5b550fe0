"""What a server, the network and the clock do to locks on etcd; no two holders, nothing left."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, lock, lock_all, locks
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.core.values import Grant
from tests.claims import claim, granted, soon, started
from tests.etcd.tools import Opener, entry_of
from tests.faults import storm
from tests.faults.shares import ETCD_STORMS
from tests.faults.storm import Guarded
from tests.faults.test_stopped import goes_on, holder
from tests.faults.weather import SECONDS, begin, end
from tests.proxy import Proxy
from tests.servers import Etcd, ServerError

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LONG = 20.0
TTL = 0.7


def through(proxy: Proxy, opened: Opener, name: str, **options: object) -> EtcdBackend:
    """Open an alias through the proxy, and make it connect."""
    backend = opened(f"http://127.0.0.1:{proxy.port}", prefix=name, **options)
    warm = claim(backend, "warm")
    granted(backend, warm)
    backend.release(warm)
    return backend


def test_the_answer_to_an_attempt_is_lost(proxy: Proxy, opened: Opener, name: str) -> None:
    """D2, D4. It is asked again, and finds its own key: the same token, and one key."""
    backend = through(proxy, opened, name)
    mine = claim(backend, name)
    fault = proxy.fault(b"request_put")
    token = granted(backend, mine)
    fault.wait()
    assert granted(backend, mine) == token
    (info,) = backend.held()
    assert (info.fencing_token, info.waiters) == (token, 0)
    assert backend.release(mine)
    assert list(backend.held()) == []


def test_the_answer_to_an_attempt_is_lost_on_an_event_loop(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    backend = through(proxy, opened, name)
    mine = claim(backend, name)

    async def main() -> None:
        fault = proxy.fault(b"request_put")
        answer = await backend.atry_acquire(mine, LONG)
        assert isinstance(answer, Grant)
        await asyncio.to_thread(fault.wait)
        again = await backend.atry_acquire(mine, LONG)
        assert isinstance(again, Grant)
        assert again.fencing_token == answer.fencing_token
        assert await backend.arelease(mine)
        assert await backend.ainspect(name) is None

    asyncio.run(main())


def test_an_attempt_that_was_never_answered_is_withdrawn(
    proxy: Proxy, opened: Opener, name: str, server: Etcd
) -> None:
    """D8. With its key and its lease, as soon as the network is back."""
    backend = through(proxy, opened, name, COMMAND_TIMEOUT=2.5)
    ((lease,),) = backend._algorithm.pool._idle.values()
    assert lease.id in server.leases()
    fault = proxy.fault(b"request_put", then="hang")
    with pytest.raises(LockBackendError):
        lock(name, using=backend.alias, ttl=20).acquire(wait=0)
    fault.wait()
    proxy.mend()
    soon(lambda: backend.inspect(name) is None)
    soon(lambda: lease.id not in server.leases())
    with lock(name, using=backend.alias):
        pass


def test_the_answer_to_a_release_is_lost(proxy: Proxy, opened: Opener, name: str) -> None:
    """It was ours by our clock, and it is gone: the first request has done it."""
    backend = through(proxy, opened, name)
    mine = claim(backend, name)
    granted(backend, mine)
    fault = proxy.fault(b"request_delete_range")
    assert backend.release(mine)
    fault.wait()
    assert backend.inspect(name) is None
    assert backend.release(mine) is False


def test_the_answer_to_a_renewal_is_lost(proxy: Proxy, opened: Opener, name: str) -> None:
    backend = through(proxy, opened, name)
    mine = claim(backend, name, ttl=4.0)
    granted(backend, mine)
    for ttl in (mine.ttl, 8.0):  # 8: it is hung on another lease, whose lease nobody saw granted
        again = type(mine)(mine.name, mine.key, mine.owner, ttl)
        fault = proxy.fault(b'"ID"' if ttl == mine.ttl else b"ignore_value")
        assert backend.renew(again)
        fault.wait()
    assert entry_of(backend, mine).unsure
    assert backend.release(mine)


def test_cut_off_for_less_than_the_ttl(proxy: Proxy, opened: Opener, name: str) -> None:
    backend = through(proxy, opened, name)
    lease = lock(name, using=backend.alias, ttl=6.0).acquire()
    assert lease is not None
    proxy.cut()
    time.sleep(0.3)
    proxy.mend()
    lease.check()
    lease.renew()
    lease.release()


def test_cut_off_for_longer_than_the_ttl(
    proxy: Proxy, opened: Opener, name: str, server: Etcd
) -> None:
    """The holder knows before another is granted it, and its release harms nobody."""
    backend = through(proxy, opened, name, COMMAND_TIMEOUT=2.5)
    near = opened(server.url, prefix=name)
    lease = lock(name, using=backend.alias, ttl=TTL).acquire()
    assert lease is not None
    told: list[float] = []
    lease.on_lost(lambda lost: told.append(time.monotonic()))
    proxy.silence()
    theirs = lock(name, using=near.alias).acquire(wait=LONG)
    came = time.monotonic()
    assert theirs is not None
    assert lease.lost
    soon(lambda: told)
    assert told[0] <= came + 1.0
    proxy.mend()
    with pytest.raises(LeaseLostError):
        lease.release()
    theirs.renew()
    assert theirs.fencing_token > lease.fencing_token
    theirs.release()


def test_a_waiter_is_cut_off_and_comes_back(
    proxy: Proxy, opened: Opener, name: str, server: Etcd
) -> None:
    """Its watch is gone, and what it missed is found by asking."""
    far, near = through(proxy, opened, name), opened(server.url, prefix=name)
    mine = claim(near, name)
    granted(near, mine)
    got: list[Lease | None] = []
    thread = started(lambda: got.append(lock(name, using=far.alias).acquire(wait=LONG)))
    soon(lambda: far._algorithm.entries._all and _watches(far))
    proxy.cut()
    assert near.release(mine)
    time.sleep(0.2)
    proxy.mend()
    thread.join(LONG)
    (theirs,) = got
    assert theirs is not None
    theirs.release()


def _watches(backend: EtcdBackend) -> bool:
    return any(entry.stream is not None for entry in list(backend._algorithm.entries._all.values()))


def test_a_server_started_anew_under_holders_and_waiters(opened: Opener, name: str) -> None:
    with Etcd() as server:
        backend = opened(server.url, prefix=name)
        mine = lock(name, using=backend.alias).acquire()
        assert mine is not None
        got: list[Lease | None] = []
        thread = started(lambda: got.append(lock(name, using=backend.alias).acquire(wait=LONG)))
        soon(lambda: _watches(backend))
        server.kill()
        time.sleep(0.2)
        server.start()
        mine.renew()
        assert thread.is_alive()
        mine.release()
        thread.join(LONG)
        (theirs,) = got
        assert theirs is not None
        assert theirs.fencing_token > mine.fencing_token
        theirs.release()
        assert server.all_keys() == []


def test_a_server_that_comes_back_empty(opened: Opener, name: str) -> None:
    """Its revisions begin anew: it is another cluster, and no token of the old one counts."""
    with Etcd() as server:
        backend = opened(server.url)
        lease = lock(name, using=backend.alias).acquire()
        assert lease is not None
        server.kill()
        server.run("rm", "-rf", str(server.folder / "data"))
        server.start()
        with pytest.raises(LeaseLostError):
            lease.renew()


def test_a_holder_that_stood_still_for_longer_than_its_lease(
    name: str, tmp_path: Path, server: Etcd
) -> None:
    """It is refused by all that it tries, learns of the loss, and harms none."""
    with holder("etcd", name, TTL, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        with lock(name, using="etcd", wait=LONG) as lease:
            assert Guarded(tmp_path).write(lease.fencing_token)
            lost = "LeaseLostError"
            assert goes_on(process) == {
                "before": lost,
                "written": False,
                "check": lost,
                "renew": lost,
                "release": lost,
            }
            lease.renew()


def fill(server: Etcd) -> None:
    """Write until the server refuses it."""
    for _ in range(200):
        server.ask("kv/put", {"key": "YQ==", "value": "YWFh" * 10_000})
        time.sleep(0.01)  # what is written counts when it is on the disk, each tenth of a second


def test_a_server_without_space_frees_and_renews(opened: Opener, name: str) -> None:
    with Etcd(options=["--quota-backend-bytes=200000"]) as server:
        backend = opened(server.url, COMMAND_TIMEOUT=20)
        mine = claim(backend, name)
        granted(backend, mine)
        with pytest.raises(ServerError, match="space exceeded"):
            fill(server)
        began = time.monotonic()
        with pytest.raises(LockBackendError, match="compact and defragment it"):
            lock("other", using=backend.alias).acquire()
        assert time.monotonic() - began < 10  # neither repeated nor waited for
        assert backend.renew(mine)
        assert backend.release(mine)


def test_nothing_of_a_killed_process_is_left(name: str, tmp_path: Path, server: Etcd) -> None:
    """Neither its key nor its lease."""
    digest = locks["etcd"].key(name)
    before = set(server.leases())
    with holder("etcd", name, TTL, tmp_path) as process:
        made = set(server.leases()) - before
        assert made
        assert any(digest in key for key in server.all_keys())
        process.kill()
    soon(lambda: not made & set(server.leases()))
    assert not any(digest in key for key in server.all_keys())


def test_a_holder_that_stood_still_for_less(name: str, tmp_path: Path) -> None:
    with holder("etcd", name, 6.0, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        assert lock(name, using="etcd", wait=0).acquire() is None
        fine = dict.fromkeys(("before", "check", "renew", "release"), "fine")
        assert goes_on(process) == fine | {"written": True}


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("alias", ETCD_STORMS)
def test_holders_and_waiters_killed_and_stopped(alias: str, server: Etcd, tmp_path: Path) -> None:
    """No two holders, no token twice; keys and leases of the dead are gone in time."""
    backend = locks[alias]
    late = backend.max_ttl(storm.TTL) - storm.TTL + backend.grace
    with begin(alias, tmp_path, DISTLOCK_STORM_GRANTS="3") as run:
        end(run, tmp_path, late, least=3)
    soon(lambda: backend.inspect("storm") is None)


def test_a_server_that_hangs_is_an_error_and_nothing_is_left(
    server: Etcd, opened: Opener, name: str
) -> None:
    backend = opened(server.url, COMMAND_TIMEOUT=1.0)
    server.pause()
    try:
        with pytest.raises(LockBackendError, match="did not answer"):
            lock(name, using=backend.alias, ttl=0.3).acquire(wait=0)
    finally:
        server.resume()
    soon(lambda: backend.inspect(name) is None)


def test_many_locks_of_a_slow_server_may_take_longer_than_a_request(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    """Each lease is made by itself, and asked for its end: no limit is for all of them."""
    backend = through(proxy, opened, name, COMMAND_TIMEOUT=2.0)
    proxy.delay(0.04)
    names = [f"{name} {number}" for number in range(75)]
    with lock_all(*names, using=backend.alias, ttl=60, wait=0) as leases:
        assert len(list(backend.scan(name))) == len(names)
        assert all(backend.renew_many([lease._hold.claim for lease in leases]))
    proxy.delay(0)  # so that all the leases are revoked as the alias is closed
