"""What others do in etcd between two questions of one operation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import cycle

import pytest

from django_distlock.backends.etcd import EtcdBackend
from django_distlock.backends.etcd.errors import EtcdError
from django_distlock.backends.etcd.protocol import Question
from django_distlock.core.values import Claim
from tests.claims import claim, granted
from tests.etcd.tools import Opener, entry_of
from tests.meddling import meddling
from tests.proxy import Proxy
from tests.servers import Etcd

LIMIT = 10.0
LONGER = 40.0  # another ttl than that of a claim


def meddled(backend: EtcdBackend, meddle: Callable[[str], None]) -> AbstractContextManager[None]:
    """Have ``meddle`` told, before each question of the block, what is asked for."""

    def tell(question: Question) -> None:
        meddle(question.path.rpartition("/")[2])

    return meddling(backend._client, "attempts", tell)


def lasting(mine: Claim, ttl: float) -> Claim:
    """Return a claim with another ttl."""
    return Claim(mine.name, mine.key, mine.owner, ttl)


def key_in(server: Etcd, mine: Claim) -> str:
    """Return the key of a claim."""
    (key,) = [key for key in server.all_keys() if key.endswith(mine.owner)]
    return key


def test_a_lease_that_ends_again_and_again(server: Etcd, opened: Opener, name: str) -> None:
    """Give up, and say why; nothing is put."""
    backend = opened(server.url)
    mine = claim(backend, name)

    def revoke(asked: str) -> None:
        if asked == "txn":
            server.ask("lease/revoke", {"ID": entry_of(backend, mine).lease.id})

    with meddled(backend, revoke), pytest.raises(EtcdError, match="again and again"):
        backend.try_acquire(mine, LIMIT)
    assert backend.inspect(name) is None
    token = granted(backend, mine)  # when nobody meddles any more
    assert token == entry_of(backend, mine).created
    assert backend.release(mine)


def test_an_idle_lease_that_has_ended_is_replaced_when_it_is_refreshed(
    server: Etcd, opened: Opener, name: str
) -> None:
    backend = opened(server.url)
    mine = claim(backend, name)
    granted(backend, mine)
    lease = entry_of(backend, mine).lease
    assert backend.release(mine)
    lease.until -= 10  # it has lain for ten seconds, as far as we know
    server.ask("lease/revoke", {"ID": lease.id})
    granted(backend, mine)
    assert entry_of(backend, mine).lease is not lease
    assert backend.release(mine)


def test_a_key_that_goes_while_its_lease_is_made_sure_of_is_put_anew(
    server: Etcd, opened: Opener, name: str
) -> None:
    """The first of the queue by the answer is none any more when its lease was refreshed."""
    backend = opened(server.url)
    mine = claim(backend, name)
    granted(backend, mine)
    assert backend.renew(mine)
    lease = entry_of(backend, mine).lease
    assert backend.release(mine)
    lease.term = "0"  # refreshed under another leader, who may have been none any more
    gone: list[str] = []

    def remove(asked: str) -> None:
        if asked == "keepalive" and not gone:
            gone.append(key_in(server, mine))
            server.delete(gone[0])

    with meddled(backend, remove):
        token = granted(backend, mine, LIMIT)
    assert gone
    info = backend.inspect(name)
    assert info is not None
    assert info.fencing_token == token
    assert backend.release(mine)


def test_the_key_of_an_unanswered_request_hangs_on_the_lease_of_then(
    server: Etcd, proxy: Proxy, opened: Opener, name: str
) -> None:
    """Find it though another lease was taken since, and keep alive the one that it hangs on."""
    backend = opened(f"http://127.0.0.1:{proxy.port}", COMMAND_TIMEOUT=2.5)
    with_answer = claim(backend, f"{name}0")
    granted(backend, with_answer)
    mine = claim(backend, name)
    fault = proxy.fault(b"request_put", then="hang")  # the request comes through
    with pytest.raises(backend.store_errors):
        backend.try_acquire(mine, 20.0)
    fault.wait()
    proxy.mend()
    entry = entry_of(backend, mine)
    first = entry.lease
    assert entry.unsure
    assert not entry.created
    first.until = 0.0  # so much time has passed that it has to be another one
    token = granted(backend, mine, limit=5.0)
    assert entry.lease is not first
    assert entry.lease.id == first.id
    info = backend.inspect(name)
    assert info is not None
    assert info.fencing_token == token
    assert backend.renew(mine)
    assert backend.release(mine)
    assert backend.release(with_answer)


def test_renewing_what_was_never_put_is_a_no(proxy: Proxy, opened: Opener, name: str) -> None:
    backend = opened(f"http://127.0.0.1:{proxy.port}", COMMAND_TIMEOUT=2.5)
    granted(backend, other := claim(backend, f"{name}0"))
    mine = claim(backend, name)
    fault = proxy.fault(b"request_put", to="request", then="hang")
    with pytest.raises(backend.store_errors):
        backend.try_acquire(mine, 20.0)
    fault.wait()
    proxy.mend()
    assert backend.renew_many([mine, other]) == [False, True]
    assert backend.release(other)


def test_a_foreign_lease_that_ends_while_it_is_taken_over(
    server: Etcd, opened: Opener, name: str
) -> None:
    """Another process renews a lock that was handed to it, and comes too late."""
    here, there = opened(server.url), opened(server.url)
    mine = claim(here, name)
    granted(here, mine)
    lease = entry_of(here, mine).lease

    def revoke(asked: str) -> None:
        if asked == "keepalive":
            server.ask("lease/revoke", {"ID": lease.id})

    with meddled(there, revoke):
        assert there.renew(mine) is False
    assert there._algorithm.entries.get(mine.owner) is None
    assert here.renew(mine) is False


def test_another_ttl_on_an_idle_lease_that_has_ended(
    server: Etcd, opened: Opener, name: str
) -> None:
    """Hang the key on a new one: it is found out only when the key is hung on it."""
    backend = opened(server.url)
    before = claim(backend, f"{name}0", ttl=LONGER)
    granted(backend, before)
    idle = entry_of(backend, before).lease
    assert backend.release(before)
    mine = claim(backend, name)
    token = granted(backend, mine)
    server.ask("lease/revoke", {"ID": idle.id})
    assert backend.renew(lasting(mine, LONGER))
    lease = entry_of(backend, mine).lease
    assert lease.id != idle.id
    assert lease.asked == idle.asked
    info = backend.inspect(name)
    assert info is not None
    assert info.fencing_token == token
    assert backend.release(mine)


def test_another_ttl_for_a_key_that_is_gone(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    mine = claim(backend, name)
    granted(backend, mine)
    server.delete(key_in(server, mine))
    assert backend.renew(lasting(mine, LONGER)) is False
    assert backend._algorithm.entries.get(mine.owner) is None
    assert backend.inspect(name) is None


def test_a_key_that_is_hung_on_another_lease_all_the_time(
    server: Etcd, opened: Opener, name: str
) -> None:
    """Say that it is not known; it is held still, and the next renewal finds it."""
    here, there = opened(server.url), opened(server.url)
    mine = claim(here, name)
    token = granted(here, mine)
    ttls = cycle((LONGER, mine.ttl))

    def move(asked: str) -> None:
        if asked == "txn":
            assert there.renew(lasting(mine, next(ttls)))

    with meddled(here, move), pytest.raises(EtcdError, match="all the time"):
        here.renew(mine)
    assert here.renew(mine)
    info = here.inspect(name)
    assert info is not None
    assert info.fencing_token == token
    assert here.release(mine)


def test_the_answers_to_an_attempt_and_to_its_release_are_lost(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    """It was granted by our clock, and it is gone: our first request has removed it."""
    backend = opened(f"http://127.0.0.1:{proxy.port}")
    granted(backend, other := claim(backend, f"{name}0"))
    mine = claim(backend, name)
    faults = [proxy.fault(b"request_put"), proxy.fault(b"request_delete_range")]
    granted(backend, mine, limit=5.0)
    assert entry_of(backend, mine).unsure
    assert backend.release(mine)
    for fault in faults:
        fault.wait()
    assert backend.inspect(name) is None
    assert backend.release(other)
