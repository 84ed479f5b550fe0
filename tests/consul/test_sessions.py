"""Sessions: how long they last, what is kept in them, and what happens when one ends."""

from __future__ import annotations

import time

import pytest

from django_distlock import (
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotHeldError,
    UnsupportedOperationError,
    lock,
    locks,
)
from django_distlock.backends.consul import sequencer
from django_distlock.backends.consul.sessions import ConsulSession, ConsulSessions
from django_distlock.core import flow
from django_distlock.core.values import Refusal
from tests.claims import claim, granted, soon, started
from tests.consul.tools import Opener, asked, keys_of
from tests.meddling import meanwhile
from tests.servers import Consul


def _never(id: str) -> object:
    raise AssertionError(id)


@pytest.mark.parametrize(
    ("ttl", "length"),
    [(0.01, 10), (8, 10), (8.1, 15), (30, 40), (60, 80), (64, 80), (100, 150), (64_800, 86_400)],
)
def test_a_session_outlasts_its_leases(ttl: float, length: float) -> None:
    """Use one session for leases of about the same ttl, with a quarter to spare."""
    sessions = ConsulSessions(None, {}, 10.0, time.monotonic, _never)  # type: ignore[arg-type]
    assert sessions.length(ttl) == length


def test_sessions_are_made_while_one_is_kept() -> None:
    """No mutex is held for that: what is looked through is a copy."""
    sessions = ConsulSessions(None, {}, 10.0, time.monotonic, _never)  # type: ignore[arg-type]
    far = time.monotonic() + 3600.0
    some = [ConsulSession(f"{number}", ttl=3600.0, renewed=far) for number in range(300)]
    sessions._by_ttl.update((float(number), each) for number, each in enumerate(some))

    def make_and_forget() -> None:
        for number in range(300, 400):
            sessions._by_ttl[float(number)] = ConsulSession(f"{number}", ttl=10.0, renewed=far)
        for number in range(300, 400):
            sessions._by_ttl.pop(float(number))

    with meanwhile(make_and_forget):
        for _ in range(1000):
            assert flow.run(sessions.keep("299", 30.0))  # type: ignore[arg-type]


def test_a_session_is_counted_from_before_its_renewal() -> None:
    session = ConsulSession("id", ttl=10.0, renewed=100.0)
    assert session.lasts(8.0, now=101.0)
    assert not session.lasts(8.0, now=102.0)


def test_leases_of_one_ttl_share_a_session(opened: Opener, server: Consul) -> None:
    backend = opened(server.url)
    before = set(server.sessions())
    some = [claim(backend, f"{number}") for number in range(5)]
    for each in some:
        granted(backend, each)
    assert len(set(server.sessions()) - before) == 1
    # And nobody shares a lock with its session.
    assert isinstance(backend.try_acquire(claim(backend, "0"), 0.0), Refusal)
    with asked(backend) as requests:
        assert backend.renew_many(some) == [True] * 5
    assert len(requests) == 1
    for each in some:
        assert backend.release(each)


def test_a_closed_alias_leaves_no_session(opened: Opener, server: Consul) -> None:
    before = set(server.sessions())
    backend = opened(server.url)
    with lock("a", using=backend.alias, ttl=5), lock("b", using=backend.alias, ttl=50):
        assert len(set(server.sessions()) - before) == 2
    backend.close()
    assert set(server.sessions()) <= before
    assert keys_of(server, backend) == []


def test_a_closed_alias_keeps_the_session_of_a_detached_lease(
    opened: Opener, server: Consul
) -> None:
    """Leave what another process may attach; it then moves to a session of its own."""
    backend = opened(server.url, prefix="moved")
    lease = lock("a", using=backend.alias, ttl=5).acquire()
    assert lease is not None
    token, handle = lease.fencing_token, lease.detach()
    backend.close()
    other = opened(server.url, prefix="moved")
    attached = Lease.attach(handle.replace(backend.alias, other.alias))
    assert attached.fencing_token == token
    (old,) = {hold.session for hold in backend._algorithm.holds.values()}
    server.ask("PUT", f"/v1/session/destroy/{old}")
    attached.renew()
    attached.release()
    assert keys_of(server, other) == []


def test_a_session_is_renewed_and_lapsed_leases_are_freed_before(
    opened: Opener, server: Consul
) -> None:
    """Free what nobody released, so that no lock lives on by its process's other locks."""
    backend = opened(server.url)
    granted(backend, claim(backend, "expired", ttl=0.2))
    time.sleep(0.3)
    deadline = time.monotonic() + 5
    while keys_of(server, backend):
        other = claim(backend, "other", ttl=0.2)
        granted(backend, other)
        backend.release(other)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_session_that_somebody_ended(opened: Opener, server: Consul) -> None:
    """Tell the holder by its next renewal; the next lock makes a new session."""
    backend = opened(server.url)
    lease = lock("a", using=backend.alias, ttl=20).acquire()
    assert lease is not None
    (session,) = {hold.session for hold in backend._algorithm.holds.values()}
    server.ask("PUT", f"/v1/session/destroy/{session}")
    with pytest.raises(LeaseLostError):
        lease.renew()
    with lock("a", using=backend.alias, ttl=20, wait=0) as second:
        assert second.fencing_token > lease.fencing_token
    with pytest.raises(LeaseLostError):
        lease.release()


@pytest.mark.parametrize("behavior", ["delete", "release"])
def test_a_waiter_whose_session_ended_stands_in_line_anew(
    opened: Opener, server: Consul, behavior: str
) -> None:
    """Queue again at once, also while a lock-delay is on."""
    backend = opened(server.url, BEHAVIOR=behavior, LOCK_DELAY=30, prefix=f"anew {behavior}")
    other = opened(server.url, prefix=f"anew {behavior}", BEHAVIOR=behavior)
    holder, waiter = claim(other, "a"), claim(backend, "a")
    granted(other, holder)
    assert isinstance(backend.try_acquire(waiter, 20.0), Refusal)
    server.ask(
        "PUT", f"/v1/session/destroy/{backend._algorithm.queue.entries[waiter.owner].session}"
    )
    assert isinstance(backend.try_acquire(waiter, 20.0), Refusal)
    assert other.release(holder)
    soon(lambda: backend.queue(waiter, 0.5, 0.5) and _got(backend, waiter))
    assert backend.release(waiter)


def _got(backend: object, waiter: object) -> bool:
    return not isinstance(backend.try_acquire(waiter, 20.0), Refusal)  # type: ignore[attr-defined]


@pytest.mark.parametrize("behavior", ["delete", "release"])
def test_the_lock_delay_keeps_everybody_out(opened: Opener, server: Consul, behavior: str) -> None:
    """Refuse a lock whose session was ended, for as long as LOCK_DELAY says; say no error."""
    backend = opened(server.url, LOCK_DELAY=1, BEHAVIOR=behavior)
    first = claim(backend, "a")
    token = granted(backend, first)
    session = backend._algorithm.holds[first.owner].session
    server.ask("PUT", f"/v1/session/destroy/{session}")
    ended = time.monotonic()
    assert isinstance(backend.try_acquire(claim(backend, "a"), 0.0), Refusal)
    with asked(backend) as requests, lock("a", using=backend.alias, wait=10) as lease:
        assert time.monotonic() - ended >= 0.9
        assert lease.fencing_token > token
        # Tried again at times: Consul tells nobody when the delay is over.
        assert len(requests) < 60


def test_who_is_in_line_waits_for_the_end_of_the_lock_delay(opened: Opener, server: Consul) -> None:
    """Try at times, and not all the time, though nobody has the lock."""
    backend = opened(server.url, LOCK_DELAY=1, prefix="delayed")
    other = opened(server.url, LOCK_DELAY=1, prefix="delayed")
    first = claim(other, "a")
    granted(other, first)
    got: list[int] = []

    def wait() -> None:
        with lock("a", using=backend.alias, wait=20) as lease:
            got.append(lease.fencing_token)

    waiting = started(wait)
    soon(lambda: bool(backend._algorithm.queue.entries))
    with asked(backend) as requests:
        session = other._algorithm.holds[first.owner].session
        server.ask("PUT", f"/v1/session/destroy/{session}")
        waiting.join(20)
        assert len(got) == 1
        assert len(requests) < 60


def test_no_lock_delay_after_a_release(opened: Opener, server: Consul) -> None:
    backend = opened(server.url, LOCK_DELAY=60)
    for _ in range(2):
        with lock("a", using=backend.alias, wait=0):
            pass


def test_a_vanished_holder_is_gone_with_its_session(opened: Opener, server: Consul) -> None:
    """Free a lock that nobody watched, within max_ttl, by Consul alone."""
    backend = opened(server.url)
    one = claim(backend, "a", ttl=0.5)
    granted(backend, one)
    backend._algorithm.forget_all()  # as if the process had died
    backend._sessions.forget_all()
    assert backend.max_ttl(0.5) == 2.0
    soon(lambda: keys_of(server, backend) == [], backend.max_ttl(0.5) + 3)


# -- the sequencer ---------------------------------------------------------------------------------


def test_the_sequencer_is_consuls_own(opened: Opener, server: Consul) -> None:
    """Tell the holder of now from the one before, though both have one session; keep by renewal."""
    backend = opened(server.url, BEHAVIOR="release")

    def current(key: str) -> tuple[int, str | None]:
        (pair,) = server.ask("GET", f"/v1/kv/{key}")
        return pair["LockIndex"], pair.get("Session")

    found = []
    for _ in range(2):
        with lock("a", using=backend.alias, ttl=20) as lease:
            ours = sequencer(lease)
            found.append(ours)
            assert current(ours.key) == (ours.lock_index, ours.session)
            lease.renew()
            assert sequencer(lease) == ours
            assert current(ours.key) == (ours.lock_index, ours.session)
        assert current(ours.key)[1] is None
    assert found[0].key == found[1].key
    assert found[0].session == found[1].session
    assert found[1].lock_index > found[0].lock_index
    ended = lock("a", using=backend.alias).acquire()
    assert ended is not None
    ended.release()
    with pytest.raises(LockNotHeldError):
        sequencer(ended)


def test_a_deleted_key_has_no_sequencer(opened: Opener, server: Consul) -> None:
    """Refuse what would tell an old holder from a new one by a LockIndex that begins anew."""
    backend = opened(server.url)
    with (
        lock("a", using=backend.alias) as lease,
        pytest.raises(UnsupportedOperationError, match="BEHAVIOR"),
    ):
        sequencer(lease)


def test_other_backends_have_no_sequencer() -> None:
    assert "locmem" in locks
    with lock("a", using="locmem") as lease, pytest.raises(UnsupportedOperationError):
        sequencer(lease)


def test_tokens_rise_though_the_key_is_deleted(opened: Opener, server: Consul) -> None:
    """Go on rising where Consul's LockIndex would begin anew."""
    backend = opened(server.url, BEHAVIOR="release")
    tokens = []
    for _ in range(3):
        with lock("a", using=backend.alias) as lease:
            tokens.append(lease.fencing_token)
            assert sequencer(lease).lock_index == 1
        server.ask("DELETE", f"/v1/kv/{backend._folder}?recurse")
    assert tokens == sorted(set(tokens))


def test_a_session_ends_with_a_check_of_its_service(opened: Opener, server: Consul) -> None:
    check = {"CheckID": "shop-lives", "TTL": "60s", "Status": "passing"}
    server.ask("PUT", "/v1/agent/service/register", {"Name": "shop", "Check": check})
    soon(lambda: bool(server.ask("GET", "/v1/health/checks/shop")))
    try:
        backend = opened(server.url, SERVICE_CHECKS=["shop-lives"])
        lease = lock("a", using=backend.alias, ttl=20, renew=False).acquire()
        assert lease is not None
        (hold,) = backend._algorithm.holds.values()
        assert hold.session in server.sessions()
        lease.renew()
        server.ask("PUT", "/v1/agent/check/fail/shop-lives")
        soon(lambda: hold.session not in server.sessions())
        with pytest.raises(LeaseLostError):
            lease.renew()
        with pytest.raises(LockBackendError, match="SERVICE_CHECKS"):
            lock("a", using=backend.alias).acquire(wait=0)
    finally:
        server.ask("PUT", "/v1/agent/service/deregister/shop")


def test_a_session_of_another_node(opened: Opener, server: Consul) -> None:
    """It ends with that node; one that nobody knows is told of."""
    server.ask("PUT", "/v1/catalog/register", {"Node": "elsewhere", "Address": "192.0.2.1"})
    backend = opened(server.url, NODE="elsewhere")
    lease = lock("a", using=backend.alias, ttl=20, renew=False).acquire()
    assert lease is not None
    (hold,) = backend._algorithm.holds.values()
    (session,) = server.ask("GET", "/v1/session/node/elsewhere")
    assert session["ID"] == hold.session
    server.ask("PUT", "/v1/catalog/deregister", {"Node": "elsewhere"})
    soon(lambda: hold.session not in server.sessions())
    with pytest.raises(LeaseLostError):
        lease.renew()
    with pytest.raises(LockBackendError, match=r"OPTIONS\['NODE'\]"):
        lock("a", using=backend.alias).acquire(wait=0)
