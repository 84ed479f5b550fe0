"""Locks in Consul that several hold at once: how many requests, what is left, who died."""

from __future__ import annotations

import time
from typing import Any

import pytest

from django_distlock import LockInfo, lock
from django_distlock.backends.consul import sequencer
from django_distlock.core.values import CleanPolicy, Grant, Refusal
from tests.claims import claim, granted, limited, refused, slot, soon, started
from tests.consul.tools import Opener, asked, end_sessions, keys_of
from tests.servers import Consul

BOTH = pytest.mark.parametrize("behavior", ["delete", "release"])


@BOTH
@pytest.mark.parametrize("mode", [{"shared": True}, {"limit": 3}])
def test_a_share_is_two_requests(
    opened: Opener, server: Consul, behavior: str, mode: dict[str, Any]
) -> None:
    """As many as a lock that one holds alone, also beside others, and nothing is left of them."""
    backend = opened(server.url, BEHAVIOR=behavior)
    lock_ = lock("a", using=backend.alias, **mode)
    with lock_:
        pass
    with asked(backend) as requests, lock_:
        pass
    assert len(requests) == 2
    beside = claim(backend, "a")._replace(**mode)
    granted(backend, beside)
    with asked(backend) as requests, lock_:
        pass
    assert len(requests) == 2
    assert backend.release(beside)
    assert [key for key in keys_of(server, backend) if not key.endswith("/lock")] == []


def test_the_last_of_several_processes_leaves_nothing(opened: Opener, server: Consul) -> None:
    """Whoever is the last one, though the others were granted after it had looked."""
    one, two = (opened(server.url, prefix="last") for _ in "ab")
    mine, other, third = limited(one, "a", 3), limited(two, "a", 3), limited(one, "a", 3)
    assert [slot(one, mine), slot(two, other), slot(one, third)] == [0, 1, 2]
    refused(two, limited(two, "a", 3), 0.0)
    assert one.release(mine)
    again = limited(two, "a", 3)
    assert slot(two, again) == 0
    for backend, each in ((one, third), (two, other), (two, again)):
        assert backend.release(each)
    assert keys_of(server, one) == []


def test_each_grant_of_one_moment_counts(
    opened: Opener, server: Consul, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consul does not count a write that changes nothing, so two grants must not write the same."""
    monkeypatch.setattr("django_distlock.backends.consul.holds.now_ms", lambda: 1_000)
    one, two = (opened(server.url, prefix="moment") for _ in "ab")
    mine, other = limited(one, "a", 2), limited(two, "a", 2)
    assert [slot(one, mine), slot(two, other)] == [0, 1]
    refused(one, limited(one, "a", 2), 0.0)  # which it tries by what it has seen last
    assert one.release(mine)  # by its last look it was the only one
    third = limited(one, "a", 2)
    assert slot(one, third) == 0
    for backend, each in ((two, other), (one, third)):
        assert backend.release(each)
    assert keys_of(server, one) == []


def test_the_dead_are_removed_however_many(opened: Opener, server: Consul) -> None:
    """More than one transaction removes; none of them can be renewed any more."""
    one, two = (opened(server.url, prefix="dead") for _ in "ab")
    dead = [limited(one, "a", 100)._replace(ttl=1.0) for _ in range(90)]
    for each in dead:
        one.try_acquire(each, 20.0)
    mine = claim(two, "a")
    soon(lambda: isinstance(two.try_acquire(mine, 0.0), Grant), 20)
    assert one.renew_many(dead) == [False] * 90
    assert two.release(mine)
    assert keys_of(server, one) == []


@pytest.mark.parametrize("delay", [0, 60])
def test_the_lock_delay_keeps_out_who_would_share(
    opened: Opener, server: Consul, delay: int
) -> None:
    """A session that was ended from outside leaves a holder that does not know it yet."""
    backend = opened(server.url, LOCK_DELAY=delay)
    holder, mine = claim(backend, "a"), claim(backend, "a")._replace(shared=True)
    granted(backend, holder)
    end_sessions(server, backend)
    answer = backend.try_acquire(mine, 0.0)
    assert isinstance(answer, Refusal if delay else Grant)
    assert not backend.renew(holder)
    assert backend.release(mine) is (delay == 0)


def test_a_session_that_ends_frees_its_shares(opened: Opener, server: Consul) -> None:
    one, two = (opened(server.url, prefix="ends") for _ in "ab")
    mine, other = (claim(each, "a")._replace(shared=True) for each in (one, two))
    granted(one, mine)
    granted(two, other)
    end_sessions(server, one)
    alone = claim(two, "a")
    refused(two, alone)
    assert two.withdraw(alone) is False
    assert two.release(other)
    granted(two, alone)
    assert not one.renew(mine)
    assert two.release(alone)


def test_who_waits_for_a_slot_is_woken_by_the_one_that_leaves(
    opened: Opener, server: Consul
) -> None:
    """One request waits for all who hold a slot; renewals of theirs do not end the wait."""
    one, two = (opened(server.url, prefix="woken") for _ in "ab")
    first, second, mine = limited(one, "a", 2), limited(one, "a", 2), limited(two, "a", 2)
    assert [slot(one, first), slot(one, second)] == [0, 1]
    refused(two, mine)
    waiting = started(lambda: two.queue(mine, 20.0, 20.0))
    time.sleep(0.1)
    with asked(two) as requests:
        assert one.renew_many([first, second]) == [True, True]
        time.sleep(0.2)
        assert waiting.is_alive()
        assert one.release(second)
        waiting.join(10)
    assert not waiting.is_alive()
    assert len(requests) <= 3
    assert slot(two, mine) == 1
    assert one.release(first)
    assert two.release(mine)
    assert keys_of(server, one) == []


def test_the_sequencer_of_a_share_is_of_its_own_key(opened: Opener, server: Consul) -> None:
    """By which a receiver sees whether that one holds it still, whoever else does."""
    backend = opened(server.url, BEHAVIOR="release")
    with lock("a", shared=True, using=backend.alias) as lease:
        told = sequencer(lease)
        with lock("a", shared=True, using=backend.alias, reentrant=True):
            pass
        (pair,) = server.ask("GET", f"/v1/kv/{told.key}")
        assert (pair["Session"], pair["LockIndex"]) == (told.session, told.lock_index)
    assert told.key.removeprefix(backend._folder) not in keys_of(server, backend)


def test_they_are_shown_each_and_cleaned(opened: Opener, server: Consul) -> None:
    backend = opened(server.url)
    holders = [limited(backend, "a", 2) for _ in "ab"]
    tokens = [granted(backend, each) for each in holders]
    waiting = limited(backend, "a", 2)
    refused(backend, waiting)
    found: list[LockInfo] = backend.holders("a")
    assert [(info.slot, info.limit, info.waiters) for info in found] == [(0, 2, 1), (1, 2, 1)]
    assert [info.fencing_token for info in found] == tokens
    assert list(backend.held()) == found
    assert backend.inspect("a") == found[0]
    backend.withdraw(waiting)
    assert backend.clean_batch(CleanPolicy(older_than=0.0), "").removed == 0
    end_sessions(server, backend)
    assert backend.holders("a") == []
    assert backend.clean_batch(CleanPolicy(older_than=0.0), "").removed == 1
    assert keys_of(server, backend) == []
