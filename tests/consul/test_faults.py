"""A client that is stopped, a connection that is cut, answers that are lost, on one server."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_distlock import LeaseLostError, LockBackendError, lock
from django_distlock.core.values import CleanPolicy, Grant
from tests.backends.tools import elsewhere
from tests.claims import claim, granted, soon, started
from tests.consul.tools import Opener, asked, keys_of
from tests.consul_servers import CONSUL
from tests.faults.storm import Guarded
from tests.faults.test_stopped import goes_on, holder
from tests.proxy import Proxy
from tests.servers import Consul

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def proxy(server: Consul) -> Iterator[Proxy]:
    """A proxy before the server."""
    with Proxy(server.port) as found:
        yield found


def url(proxy: Proxy) -> str:
    """Return the proxy's URL."""
    return f"http://{proxy.host}:{proxy.port}"


def test_a_client_stopped_past_its_session(name: str, tmp_path: Path) -> None:
    """It learns of the loss before it writes, and a fenced write of it is refused."""
    before = set(CONSUL[0].sessions())
    with holder("consul", name, 0.6, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        (session,) = set(CONSUL[0].sessions()) - before
        soon(lambda: session not in CONSUL[0].sessions(), 20)
        with lock(name, using="consul", wait=10) as lease:
            assert Guarded(tmp_path).write(lease.fencing_token)
            lost = "LeaseLostError"
            told = dict.fromkeys(("before", "check", "renew", "release"), lost)
            assert goes_on(process) == told | {"written": False}
            lease.renew()


def test_a_connection_cut_for_less_than_the_ttl(
    proxy: Proxy, opened: Opener, server: Consul
) -> None:
    """Renew on when the way is free again; an outage of half the ttl loses nothing (trap B14)."""
    backend = opened(url(proxy))
    with lock("a", using=backend.alias, ttl=3) as lease:
        proxy.cut()
        time.sleep(1.5)
        proxy.mend()
        time.sleep(1.7)
        lease.check()
    assert keys_of(server, backend) == []


def test_silence_for_longer_than_the_ttl(proxy: Proxy, opened: Opener, server: Consul) -> None:
    """Tell the holder by its deadline, with no word from the network (traps B15 and E6)."""
    backend = opened(url(proxy), COMMAND_TIMEOUT=1.5, prefix="silent")
    direct = opened(server.url, prefix="silent")
    lost: list[float] = []
    lease = lock("a", using=backend.alias, ttl=2).acquire()
    assert lease is not None
    lease.on_lost(lambda _: lost.append(time.monotonic()))
    proxy.silence()
    since = time.monotonic()
    soon(lambda: bool(lost), 10)
    assert lost[0] - since < 2 + 2.5
    with pytest.raises(LeaseLostError):
        lease.check()
    second = lock("a", using=direct.alias, ttl=5, wait=10).acquire()
    assert second is not None
    assert second.fencing_token > lease.fencing_token
    second.release()
    proxy.mend()
    with pytest.raises(LeaseLostError):
        lease.release()
    # The former holder takes it again as anybody else.
    with lock("a", using=backend.alias, ttl=5, wait=10) as third:
        assert third.fencing_token > second.fencing_token
    soon(lambda: keys_of(server, backend) == [])


def test_a_lock_is_kept_for_many_ttls(opened: Opener) -> None:
    """Renew the session, too, for longer than Consul keeps one that is not (trap B16)."""
    backend = opened(CONSUL[0].url)
    with lock("a", using=backend.alias, ttl=2.4) as lease:
        time.sleep(6)
        lease.check()
        assert elsewhere(lambda: lock("a", using=backend.alias, wait=0).acquire()) is None


def test_a_killed_server_comes_back_with_its_data(opened: Opener, server: Consul) -> None:
    """Keep the lease; who waits is told at once, as on the other stores, and may wait again."""
    backend = opened(server.url)
    got: list[int] = []
    errors: list[LockBackendError] = []

    def wait() -> None:
        try:
            with lock("a", using=backend.alias, wait=60) as second:
                got.append(second.fencing_token)
        except LockBackendError as error:
            errors.append(error)

    with lock("a", using=backend.alias, ttl=60) as lease:
        waiting = started(wait)
        soon(lambda: bool(backend._algorithm.queue.entries))
        server.kill()
        waiting.join(30)
        (error,) = errors
        assert f"Look at the Consul agent at {server.url}" in str(error)
        server.start()
        lease.renew()
        again = started(wait)
        soon(lambda: bool(backend._algorithm.queue.entries))
    again.join(60)
    assert len(errors) == 1
    assert got[0] > lease.fencing_token
    soon(lambda: keys_of(server, backend) == [])


LOCKED = b'"Verb":"lock"'


def test_the_answer_to_the_grant_is_lost(proxy: Proxy, opened: Opener, server: Consul) -> None:
    """Find out by asking again, with the same owner: granted once, with one token."""
    backend = opened(url(proxy))
    with lock("before", using=backend.alias, ttl=20):
        pass
    one = claim(backend, "a")
    fault = proxy.fault(LOCKED)
    answer = backend.try_acquire(one, 5.0)
    assert fault.happened.is_set()
    assert isinstance(answer, Grant)
    info = backend.inspect("a")
    assert info is not None
    assert info.fencing_token == answer.fencing_token
    assert backend.release(one)
    assert keys_of(server, backend) == []


def test_the_answer_to_the_entry_in_line_is_lost(
    proxy: Proxy, opened: Opener, server: Consul
) -> None:
    """Join the queue once."""
    backend = opened(url(proxy))
    holder, waiter = claim(backend, "a"), claim(backend, "a")
    granted(backend, holder)
    fault = proxy.fault(b'"Verb":"get-tree"')
    backend.try_acquire(waiter, 5.0)
    assert fault.happened.is_set()
    info = backend.inspect("a")
    assert info is not None
    assert info.waiters == 1
    assert backend.release(holder)
    assert backend.queue(waiter, 1.0, 1.0)
    granted(backend, waiter)
    assert backend.release(waiter)
    assert keys_of(server, backend) == []


@pytest.mark.parametrize("to", ["request", "answer"])
def test_the_answer_to_a_release_is_lost(
    proxy: Proxy, opened: Opener, server: Consul, to: str
) -> None:
    """What a release finds freed when it is repeated, it has freed."""
    backend = opened(url(proxy))
    lease = lock("a", using=backend.alias, ttl=20).acquire()
    assert lease is not None
    fault = proxy.fault(b'"Verb":"delete"', to=to)  # type: ignore[arg-type]
    lease.release()
    assert not lease.lost
    assert fault.happened.is_set()
    assert keys_of(server, backend) == []


def test_a_lock_that_is_gone_is_not_released(opened: Opener, server: Consul) -> None:
    """Tell who releases what was freed behind its back, and by nobody of this process."""
    backend = opened(server.url)
    for ending in ("key", "session"):
        lease = lock("a", using=backend.alias, ttl=20, renew=False).acquire()
        assert lease is not None
        (hold,) = backend._algorithm.holds.values()
        if ending == "key":
            server.ask("DELETE", f"/v1/kv/{hold.paths.lock}")
        else:
            server.ask("PUT", f"/v1/session/destroy/{hold.session}")
        with pytest.raises(LeaseLostError):
            lease.release()


def test_the_answer_to_a_renewal_is_lost(proxy: Proxy, opened: Opener, server: Consul) -> None:
    """Renew anew from what stands there now; a release frees that."""
    backend = opened(url(proxy))
    with lock("a", using=backend.alias, ttl=20, renew=False) as lease:
        proxy.fault(LOCKED)
        lease.renew()
        assert 10 < lease.remaining() <= 20
        lease.renew()
    assert keys_of(server, backend) == []


def test_whether_one_holds_is_never_read_from_who_may_be_no_leader(opened: Opener) -> None:
    """Ask for a consistent read before a lease is called lost."""
    backend = opened(CONSUL[0].url)
    with asked(backend) as requests:
        assert backend.renew(claim(backend, "a")) is False
    assert any("consistent" in request.target for request in requests)


def test_another_agent_is_asked_when_one_is_down(opened: Opener, server: Consul) -> None:
    """Ask the next of LOCATION."""
    with Proxy(server.port) as first:
        backend = opened([url(first), server.url])
        with lock("a", using=backend.alias, ttl=20) as lease:
            first.cut()
            lease.renew()
        with lock("a", using=backend.alias, ttl=20, wait=0) as second:
            assert second.fencing_token > lease.fencing_token


def test_cleaning_a_slow_server_may_take_longer_than_a_request(
    proxy: Proxy, opened: Opener, server: Consul
) -> None:
    """COMMAND_TIMEOUT is for one of its requests, not for all that there is to remove."""
    backend = opened(url(proxy), BEHAVIOR="release", COMMAND_TIMEOUT=2.0)
    for number in range(60):
        one = claim(backend, f"{number}")
        granted(backend, one)
        assert backend.release(one)
    proxy.delay(0.04)
    assert backend.clean_batch(CleanPolicy(older_than=0.0), "").removed == 60
    assert keys_of(server, backend) == []


def test_renewing_by_a_slow_server_may_take_longer_than_a_request(
    proxy: Proxy, opened: Opener, server: Consul
) -> None:
    """Once one of many is lost each is asked for: no limit is for all of them."""
    backend = opened(url(proxy), COMMAND_TIMEOUT=2.0)
    claims = [claim(backend, f"{number}") for number in range(60)]
    for each in claims:
        granted(backend, each)
    server.ask("DELETE", f"/v1/kv/{backend._algorithm.holds[claims[7].owner].paths.lock}")
    proxy.delay(0.1)
    assert backend.renew_many(claims) == [each is not claims[7] for each in claims]
