"""Leases of etcd: lent to one claim at a time, raised, refilled, revoked."""

from __future__ import annotations

import gc
import json
import time

import pytest

from django_distlock import Lease, LeaseLostError, lock
from django_distlock.backends.etcd import protocol
from django_distlock.backends.etcd.leases import LeasePool, Lent, lifetime
from django_distlock.core.durations import MAX_TTL
from django_distlock.core.values import Claim
from tests.backends.tools import elsewhere
from tests.claims import claim, granted, refused, soon
from tests.etcd.tools import Opener, entry_of, tally
from tests.proxy import Proxy
from tests.servers import Etcd, ServerError


def test_a_lease_outlasts_the_ttl_whatever_the_clocks() -> None:
    """One of them may run a hundredth faster, and it is lent for a while without being asked."""
    for ttl in (0.001, 0.2, 0.79, 0.8, 1, 1.59, 2, 4, 20, 30, 3600, 86400, MAX_TTL):
        lease = Lent("1", lifetime(ttl), 0.0)
        lease.refreshed(100.0, lifetime(ttl), None)
        assert lease.until - 100.0 >= ttl + min(ttl / 5, 4.9)
        assert lifetime(ttl) <= 1.02 * ttl + 6


def test_a_pair_is_two_requests(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    with lock(name, using=backend.alias):
        pass
    with tally(backend) as counted:
        for _ in range(5):
            with lock(name, using=backend.alias):
                pass
    assert counted == {"txn": 10}


def test_a_lease_carries_one_lock_at_a_time(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    a, b, c = (claim(backend, f"{name}{letter}") for letter in "abc")
    granted(backend, a)
    granted(backend, b)
    first, second = entry_of(backend, a).lease, entry_of(backend, b).lease
    assert first.id != second.id
    assert backend.release(a)
    granted(backend, c)
    assert entry_of(backend, c).lease is first
    assert backend.release(b)
    assert backend.release(c)
    assert len(backend._algorithm.pool) == 2
    assert len(backend._algorithm.entries) == 0


def test_what_keeps_one_lock_alive_keeps_no_other(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    kept = lock(name + "kept", using=backend.alias, ttl=3).acquire()
    dropped = lock(name + "dropped", using=backend.alias, ttl=3).acquire()
    fixed = lock(name + "fixed", using=backend.alias, ttl=3, renew=False).acquire()
    assert isinstance(kept, Lease)
    assert isinstance(fixed, Lease)
    assert dropped
    del dropped
    gc.collect()
    within = backend.max_ttl(3) + backend.grace
    for gone in ("dropped", "fixed"):
        waiting = lock(name + gone, using=backend.alias, wait=within)
        theirs = elsewhere(waiting.acquire)
        assert theirs is not None
        theirs.release()
    kept.renew()
    kept.release()


def test_a_lease_that_lay_about_is_refreshed_or_replaced(
    server: Etcd, opened: Opener, name: str
) -> None:
    backend = opened(server.url)
    first = claim(backend, name)
    granted(backend, first)
    lease = entry_of(backend, first).lease
    assert backend.release(first)
    lease.until -= 10  # it has lain for ten seconds, as far as we know
    second = claim(backend, name)
    with tally(backend) as counted:
        granted(backend, second)
    assert counted == {"keepalive": 1, "txn": 1}
    assert entry_of(backend, second).lease is lease
    assert backend.release(second)
    server.ask("lease/revoke", {"ID": lease.id})
    third = claim(backend, name)
    granted(backend, third)  # it finds out when it puts the key
    assert entry_of(backend, third).lease is not lease
    assert backend.release(third)


def test_idle_leases_are_forgotten_when_they_have_ended() -> None:
    pool = LeasePool()
    for number in range(5):
        pool.give_back(Lent(str(number), 5, 10.0 + number), now=9.0)
    assert len(pool) == 5
    pool.give_back(Lent("last", 5, 20.0), now=13.5)
    assert len(pool) == 2
    assert pool.lend(5, now=13.5) is not None
    assert pool.lend(5, now=14.5) is None
    assert len(pool) == 0


def test_a_lease_of_an_unanswered_request_is_not_lent_again(
    server: Etcd, proxy: Proxy, opened: Opener, name: str
) -> None:
    """A server that hung may put the key long after the lock was released (traps, D4)."""
    backend = opened(f"http://127.0.0.1:{proxy.port}", prefix=name)
    mine = claim(backend, name)
    fault = proxy.fault(b"request_put")
    token = granted(backend, mine)
    fault.wait()
    entry = entry_of(backend, mine)
    assert entry.created == token  # the first request's; it was sent twice
    assert backend.release(mine)
    assert len(backend._algorithm.pool) == 0
    late = protocol.join(entry.keys, protocol.base64("late"), entry.lease.id)
    with pytest.raises(ServerError, match="lease not found"):
        server.ask(late.path.removeprefix("/v3/"), json.loads(late.body))
    assert backend.inspect(name) is None


def test_a_ttl_below_the_servers_least_is_raised(opened: Opener, name: str) -> None:
    """V21. In the store it is 2 s by etcd's defaults; here it ends when it was said to."""
    with Etcd(heartbeat=100) as server:
        backend = opened(server.url)
        assert backend.max_ttl(0.6) == 2
        lease = lock(name, using=backend.alias, ttl=0.6, renew=False).acquire()
        assert lease is not None
        assert lease.remaining() < 0.6
        time.sleep(0.65)
        with pytest.raises(LeaseLostError):
            lease.check()
        assert lock(name, using=backend.alias, wait=0).acquire() is None
        within = backend.max_ttl(0.6) + backend.grace + 5.0
        theirs = lock(name, using=backend.alias, wait=within).acquire()
        assert theirs is not None
        theirs.release()


def test_the_servers_least_is_learned(opened: Opener, name: str) -> None:
    with Etcd(heartbeat=200) as server:
        backend = opened(server.url)
        with lock(name, using=backend.alias, ttl=2.0, renew=False):
            assert backend.max_ttl(2.0) == 3
    assert backend.max_ttl(20) == lifetime(20)


def test_a_restart_refills_leases(opened: Opener, name: str) -> None:
    """V22. The lock is free later than said without the restart; nobody relies on that."""
    with Etcd() as server:
        backend = opened(server.url)
        lease = lock(name, using=backend.alias, ttl=2.0, renew=False).acquire()
        assert lease is not None
        time.sleep(1.0)
        server.kill()
        server.start()
        came = time.monotonic()
        time.sleep(lease.remaining() + 0.05)
        with pytest.raises(LeaseLostError):
            lease.check()
        assert lock(name, using=backend.alias, wait=0).acquire() is None  # refilled
        theirs = lock(name, using=backend.alias, wait=10).acquire()
        assert theirs is not None
        assert time.monotonic() - came <= backend.max_ttl(2.0) + backend.grace + 5.0
        assert theirs.fencing_token > lease.fencing_token
        theirs.release()


def test_a_server_that_stood_still_for_longer_than_a_lease(opened: Opener, name: str) -> None:
    """V22. The key is gone when it goes on, and who held it knows."""
    with Etcd() as server:
        backend = opened(server.url, COMMAND_TIMEOUT=1.0)
        lease = lock(name, using=backend.alias, ttl=1.5).acquire()
        assert lease is not None
        server.pause()
        soon(lambda: lease.lost)
        time.sleep(1.0)
        server.resume()
        theirs = lock(name, using=backend.alias, wait=5).acquire()
        assert theirs is not None
        theirs.release()
        with pytest.raises(LeaseLostError):
            lease.release()


@pytest.mark.parametrize("what", ["lease", "key"])
def test_renewing_what_was_taken_away_is_a_loss(
    what: str, server: Etcd, opened: Opener, name: str
) -> None:
    """E3, E4. By hand or by the server: the renewal says no."""
    backend = opened(server.url, prefix=name)
    mine = claim(backend, name)
    granted(backend, mine)
    if what == "lease":
        server.ask("lease/revoke", {"ID": entry_of(backend, mine).lease.id})
    else:
        (key,) = [key for key in server.all_keys() if key.endswith(mine.owner)]
        server.delete(key)
    other = claim(backend, name)
    granted(backend, other)
    assert backend.renew_many([other, mine]) == [True, False]
    assert backend.release(mine) is False
    assert backend.release(other)


def test_who_holds_what_was_taken_away_is_told(server: Etcd, opened: Opener, name: str) -> None:
    """E4. Within a third of the ttl, by the watchdog."""
    backend = opened(server.url, prefix=name)
    lease = lock(name, using=backend.alias, ttl=6).acquire()
    assert lease is not None
    told: list[Lease] = []
    lease.on_lost(told.append)
    (key,) = [key for key in server.all_keys() if f"/{backend.key(name)}/" in key]
    server.delete(key)
    soon(lambda: told, within=5)


def test_another_ttl_hangs_on_another_lease(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    lease = lock(name, using=backend.alias, ttl=2.0, renew=False).acquire()
    assert lease is not None
    token = lease.fencing_token
    lease.renew(20)
    time.sleep(backend.max_ttl(2.0) + 0.6)
    info = backend.inspect(name)
    assert info is not None
    assert info.fencing_token == token
    lease.renew()
    lease.release()


def test_a_lease_of_another_process_is_not_lent_here(
    server: Etcd, opened: Opener, name: str
) -> None:
    """Who made it may hang a lock on it, too."""
    here, there = opened(server.url), opened(server.url)
    mine = claim(here, name)
    granted(here, mine)
    assert there.renew(mine)
    assert entry_of(there, mine).lease.id == entry_of(here, mine).lease.id
    assert there.release(mine)
    assert len(there._algorithm.pool) == 0
    assert here.renew(mine) is False


def test_a_lock_that_another_process_hung_on_its_own_lease_is_followed(
    server: Etcd, opened: Opener, name: str
) -> None:
    """Detached, renewed there for another ttl and for the first one again, and attached here."""
    here, there = opened(server.url), opened(server.url)
    mine = claim(here, name, ttl=20.0)
    token = granted(here, mine)
    old = entry_of(here, mine).lease
    for ttl in (40.0, 20.0):
        assert there.renew(Claim(mine.name, mine.key, mine.owner, ttl))
    server.ask("lease/revoke", {"ID": old.id})
    assert here.renew(mine)
    assert entry_of(here, mine).lease.id == entry_of(there, mine).lease.id
    info = here.inspect(name)
    assert info is not None
    assert info.fencing_token == token
    assert here.release(mine)


def test_a_child_has_neither_leases_nor_entries(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    held, kept = claim(backend, name), claim(backend, f"{name}2")
    granted(backend, held)
    granted(backend, kept)
    lease = entry_of(backend, kept).lease
    assert backend.release(kept)
    assert len(backend._algorithm.pool) == 1
    backend.forget_parent()
    granted(backend, kept)
    assert entry_of(backend, kept).lease.id != lease.id
    assert backend._algorithm.entries.get(held.owner) is None
    assert backend.release(kept)
    assert backend.release(held)  # by the owner in the store


def test_a_lease_refreshed_under_another_leader_is_refreshed_again(
    server: Etcd, opened: Opener, name: str
) -> None:
    """E2. It may have been one that was no leader any more when it said yes."""
    backend = opened(server.url)
    mine = claim(backend, name)
    granted(backend, mine)
    lease = entry_of(backend, mine).lease
    assert backend.renew(mine)
    term = lease.term
    assert term is not None
    assert backend.release(mine)
    lease.term = "0"
    with tally(backend) as counted:
        granted(backend, mine)
    assert counted == {"txn": 2, "keepalive": 1}
    assert lease.term == term
    assert backend.release(mine)


def test_what_ended_without_a_release_is_forgotten(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    entries = backend._algorithm.entries
    for number in range(300):
        granted(backend, claim(backend, f"{name}{number}", ttl=3600))
        if number < 250:
            for entry in list(entries._all.values()):
                entry.lease.until = 0.0
    assert len(entries) < 100
    for lease in server.leases():
        server.ask("lease/revoke", {"ID": lease})


def test_a_refused_attempt_leaves_nothing(server: Etcd, opened: Opener, name: str) -> None:
    """C9. However often it is repeated; the lease is the same, and not kept alive for it."""
    backend = opened(server.url, prefix=name)
    mine = claim(backend, name)
    granted(backend, mine)
    keys = server.all_keys()
    refused(backend, claim(backend, name), 0.0)
    leases = server.leases()
    with tally(backend) as counted:
        for _ in range(5):
            refused(backend, claim(backend, name), 0.0)
    assert counted == {"txn": 5}
    assert (server.all_keys(), server.leases()) == (keys, leases)
    assert backend.release(mine)
