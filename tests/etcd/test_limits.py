"""Limits in etcd: the slots of the holders, their cost, and the order of the waiters."""

from __future__ import annotations

from itertools import pairwise

from django_distlock import lock
from django_distlock.core.values import Grant
from tests.claims import granted, limited, refused, slot
from tests.etcd.test_between import meddled
from tests.etcd.tools import Opener, entry_of, tally
from tests.proxy import Proxy
from tests.servers import Etcd

LONG = 20.0


def test_a_slot_costs_what_an_exclusive_lock_costs(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    with lock(name, using=backend.alias):
        pass  # there is a lease by now
    counts = []
    for limit in (None, 4):
        with tally(backend) as counted, lock(name, using=backend.alias, limit=limit):
            pass
        counts.append(counted)
    assert counts[0] == counts[1] == {"txn": 2}


def test_the_second_one_takes_another_slot(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    claims = [limited(backend, name, 3) for _ in range(3)]
    assert [slot(backend, each) for each in claims] == [0, 1, 2]
    shown = backend.holders(name)
    assert [(info.slot, info.limit) for info in shown] == [(0, 3), (1, 3), (2, 3)]
    assert len({info.fencing_token for info in shown}) == 3
    assert backend.release(claims[1])
    claims[1] = limited(backend, name, 3)
    assert slot(backend, claims[1]) == 1
    for each in claims:
        assert backend.release(each)


def test_the_first_waiter_watches_all_and_the_next_one_the_first(
    server: Etcd, opened: Opener, name: str
) -> None:
    """C1. One release wakes one, who wakes the next one when a second slot is free."""
    backend = opened(server.url)
    holders = [limited(backend, name, 2) for _ in range(2)]
    for each in holders:
        slot(backend, each)
    waiters = [limited(backend, name, 2) for _ in range(3)]
    for each in waiters:
        refused(backend, each)
    assert entry_of(backend, waiters[0]).ahead == entry_of(backend, waiters[0]).keys.first
    for before, each in pairwise(waiters):
        assert entry_of(backend, each).ahead == entry_of(backend, before).keys.own
    for each in waiters:
        # It looks once more when its watch has begun: something may have happened before.
        assert backend.queue(each, 10.0, LONG)
        refused(backend, each)
    assert backend.release(holders[1])
    assert backend.queue(waiters[0], 10.0, LONG)
    with tally(backend) as counted:
        assert slot(backend, waiters[0]) == 1
    assert counted == {"range": 1, "txn": 1}
    assert backend.queue(waiters[1], 10.0, LONG)  # told that the one before it has a slot
    refused(backend, waiters[1])
    assert entry_of(backend, waiters[1]).ahead == entry_of(backend, waiters[1]).keys.first
    for each, held in zip((*waiters[::-1], holders[0]), (False, False, True, True), strict=True):
        assert backend.release(each) is held


def test_a_slot_is_left_to_the_first_waiter(server: Etcd, opened: Opener, name: str) -> None:
    """The holder writes it when it leaves; the next one hears of it, and asks nothing."""
    backend = opened(server.url)
    holder, first, second = (limited(backend, name, 1) for _ in range(3))
    slot(backend, holder)
    for each in (first, second):
        refused(backend, each)
    assert backend.release(holder)
    token = granted(backend, first)
    for _ in range(2):  # it watches the whole line, which nothing happens in
        refused(backend, second)
        assert backend.queue(second, 10.0, LONG) is True
    refused(backend, second)
    with tally(backend) as counted:
        assert backend.release(first)
    assert counted == {"range": 1, "txn": 1}
    with tally(backend) as counted:
        answer = backend.queue(second, 10.0, LONG)
    assert not counted
    assert isinstance(answer, Grant)
    assert (answer.slot, answer.fencing_token > token) == (0, True)
    (info,) = backend.holders(name)
    assert (info.slot, info.fencing_token) == (0, answer.fencing_token)
    assert backend.release(second)


def test_two_who_leave_at_once_leave_their_slots_to_two(
    server: Etcd, opened: Opener, name: str
) -> None:
    """The second one finds that the first waiter has been given a slot, and takes the next one."""
    backend = opened(server.url)
    holders = [limited(backend, name, 2) for _ in range(2)]
    waiters = [limited(backend, name, 2) for _ in range(2)]
    for each in holders:
        slot(backend, each)
        entry_of(backend, each).wanted = True
    for each in waiters:
        refused(backend, each)
    left: list[bool] = []

    def leave(asked: str) -> None:
        if asked == "txn" and not left:
            left.append(True)
            left.append(backend.release(holders[1]))

    with meddled(backend, leave):
        assert backend.release(holders[0])
    assert left == [True, True]
    assert {info.slot for info in backend.holders(name)} == {0, 1}
    with tally(backend) as counted:
        assert [slot(backend, each) for each in waiters] == [1, 0]
    assert counted == {"range": 2}
    for each in waiters:
        assert backend.release(each)


def test_the_tokens_of_a_slot_rise(server: Etcd, opened: Opener, name: str) -> None:
    """Also when its holders came in another order than they were granted it."""
    backend = opened(server.url)
    holders = [limited(backend, name, 2) for _ in range(2)]
    waiter = limited(backend, name, 2)
    for each in holders:
        slot(backend, each)
    refused(backend, waiter)
    assert backend.release(holders[0])
    late = limited(backend, name, 2)  # the slot is the waiter's, who has not looked yet
    refused(backend, late)
    assert backend.release(holders[1])
    joined = max(entry_of(backend, each).created for each in (late, waiter))
    tokens: dict[int, int] = {}
    for each in (late, waiter):
        answer = backend.try_acquire(each, LONG)
        assert isinstance(answer, Grant)
        assert answer.slot is not None
        tokens[answer.slot] = answer.fencing_token
        assert answer.fencing_token > joined
    assert set(tokens) == {0, 1}
    for each in (late, waiter):
        assert backend.release(each)


def test_another_ttl_keeps_slot_and_token(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url)
    with (
        lock(name, using=backend.alias, limit=2),
        lock(f"{name}2", using=backend.alias, limit=2) as lease,
    ):
        before = lock(f"{name}2", using=backend.alias).info()
        lease.renew(ttl=55)
        info = lock(f"{name}2", using=backend.alias).info()
        assert info is not None
        assert (info.slot, info.fencing_token) == (lease.slot, lease.fencing_token)
        assert before is not None
        assert info.acquired_at == before.acquired_at
        lease.check()


def test_the_answer_that_a_slot_was_written_is_lost(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    """It finds its slot written, and takes no second one."""
    backend = opened(f"http://127.0.0.1:{proxy.port}")
    first, second = limited(backend, name, 3), limited(backend, name, 3)
    assert slot(backend, first) == 0
    fault = proxy.fault(b"ignore_lease")
    answer = backend.try_acquire(second, LONG)
    fault.wait()
    assert isinstance(answer, Grant)
    shown = {info.slot: info.fencing_token for info in backend.holders(name)}
    assert shown[1] == answer.fencing_token
    assert set(shown) == {0, 1}
    for each in (first, second):
        assert backend.release(each)
