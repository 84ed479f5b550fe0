"""Limits in ZooKeeper: the slots of the holders, their cost, and the order of the waiters."""

from __future__ import annotations

from typing import Any

import pytest

from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.core.values import Grant
from tests.claims import claim, granted, limited, refused, slot, soon
from tests.proxy import Proxy
from tests.servers import ZooKeeper
from tests.zookeeper.tools import Opener, entry_of

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def backend(server: ZooKeeper, opened: Opener, name: str) -> ZooKeeperBackend:
    """An alias of the ZooKeeper of this run."""
    return opened(f"127.0.0.1:{server.port}", prefix=name)


def test_a_slot_costs_what_an_exclusive_lock_costs(backend: ZooKeeperBackend, name: str) -> None:
    granted(backend, first := claim(backend, name))
    assert backend.release(first)
    asked: list[int] = []
    real = backend._session.ask

    def ask(requests: Any, limit: float) -> list[Any]:
        asked.append(len(requests))
        return real(requests, limit)

    backend._session.ask = ask  # type: ignore[method-assign]
    for mine in (claim(backend, name), limited(backend, name, 4)):
        assert isinstance(backend.try_acquire(mine, 20.0), Grant)
        assert backend.release(mine)
    assert asked == [2, 1, 2, 1]


def test_the_second_one_takes_another_slot(backend: ZooKeeperBackend, name: str) -> None:
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
    backend: ZooKeeperBackend, name: str
) -> None:
    """C1. One release wakes one, who wakes the next one when a second slot is free."""
    holders = [limited(backend, name, 2) for _ in range(2)]
    for each in holders:
        slot(backend, each)
    waiters = [limited(backend, name, 2) for _ in range(2)]
    refused(backend, waiters[0])
    assert backend.queue(waiters[0], 0.01, 1.0)
    first = entry_of(backend, waiters[0])
    assert first.watching == first.path
    refused(backend, waiters[1])
    assert backend.queue(waiters[1], 0.01, 1.0)
    second = entry_of(backend, waiters[1])
    assert second.watching == first.whole
    # The second one has come since the first one looked: that one looks once more.
    soon(lambda: first.stale)
    refused(backend, waiters[0])
    assert backend.queue(waiters[0], 0.01, 1.0)
    assert not first.stale
    assert not second.stale
    assert backend.release(holders[1])
    soon(lambda: first.stale)
    assert not second.stale
    assert slot(backend, waiters[0]) == 1
    soon(lambda: second.stale)
    refused(backend, waiters[1])
    assert backend.queue(waiters[1], 0.01, 1.0)
    assert second.watching == second.path
    assert backend.release(holders[0])
    soon(lambda: second.stale)
    assert slot(backend, waiters[1]) == 0
    for each in waiters:
        assert backend.release(each)


def test_the_tokens_of_a_slot_rise(backend: ZooKeeperBackend, name: str) -> None:
    """Also when its holders came in another order than they were granted it."""
    holders = [limited(backend, name, 2) for _ in range(2)]
    waiter, late = limited(backend, name, 2), limited(backend, name, 2)
    tokens = []
    for each in holders:
        answer = backend.try_acquire(each, 20.0)
        assert isinstance(answer, Grant)
        tokens.append(answer.fencing_token)
    for each in (waiter, late):
        refused(backend, each)
    for each in holders:
        assert backend.release(each)
    found = {}
    for each in (late, waiter):
        answer = backend.try_acquire(each, 20.0)
        assert isinstance(answer, Grant)
        found[answer.slot] = answer.fencing_token
    assert set(found) == {0, 1}
    assert min(found.values()) > max(tokens)
    for each in (late, waiter):
        assert backend.release(each)


def test_the_answer_that_a_slot_was_written_is_lost(
    proxy: Proxy, opened: Opener, name: str
) -> None:
    """It finds its slot written, and takes no second one."""
    backend = opened(f"127.0.0.1:{proxy.port}", prefix=name)
    first, second = limited(backend, name, 3), limited(backend, name, 3)
    assert slot(backend, first) == 0
    fault = proxy.fault(b", 0, 1]")
    answer = backend.try_acquire(second, 10.0)
    fault.wait()
    assert isinstance(answer, Grant)
    shown = {info.slot: info.fencing_token for info in backend.holders(name)}
    assert shown[1] == answer.fencing_token
    assert set(shown) == {0, 1}
    for each in (first, second):
        assert backend.release(each)
