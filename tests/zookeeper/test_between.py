"""What others do in ZooKeeper between two requests of one operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.backends.zookeeper import algorithm as algorithm_module
from django_distlock.backends.zookeeper.algorithm import TRIES, Talk
from django_distlock.backends.zookeeper.entries import ZooKeeperEntry
from django_distlock.core.values import Claim, Grant, Refusal
from tests.claims import claim, granted, refused, soon
from tests.servers import ZooKeeper
from tests.zookeeper.tools import Opener, ask, entry_of, queue_of

pytestmark = pytest.mark.usefixtures("leaves_nothing")

T = TypeVar("T")

LIMIT = 10.0


def meddled(backend: ZooKeeperBackend, talk: Talk[T], meddle: Callable[[list[str]], None]) -> T:
    """Carry an operation out; before each batch ``meddle`` is told the kinds of its requests."""
    try:
        batch = next(talk)
        while True:
            meddle([type(each).__name__ for each in batch])
            batch = talk.send(backend._session.ask(batch, LIMIT))
    except StopIteration as stop:
        result: T = stop.value
        return result


def remove(backend: ZooKeeperBackend, mine: Claim, node: str) -> None:
    """Remove a node of a lock's queue, as somebody would by hand."""
    assert ask(backend, "Delete", f"{backend._algorithm.path(mine)}/{node}", -1) is True


def node_of(backend: ZooKeeperBackend, mine: Claim) -> str:
    """Return the name of a claim's node."""
    (node,) = [each for each in queue_of(backend, mine.name) if mine.owner in each]
    return node


def test_the_node_of_who_is_refused_is_gone_already(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    backend = opened(server.address, prefix=name)
    other, mine = claim(backend, name), claim(backend, name)
    granted(backend, other)

    def meddle(asked: list[str]) -> None:
        if "Delete" in asked:
            remove(backend, mine, node_of(backend, mine))

    answer = meddled(backend, backend._algorithm.acquire(mine, join=False), meddle)
    assert isinstance(answer, Refusal)
    assert backend._entries.get(mine.owner) is None
    assert backend.release(other)


def test_a_entry_that_was_given_up_while_its_node_was_made(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Know it again, as there is a node to be removed now."""
    backend = opened(server.address, prefix=name)
    mine = claim(backend, name)

    def meddle(asked: list[str]) -> None:
        if (entry := backend._entries.get(mine.owner)) and not entry.node:
            backend._entries.drop(entry)

    answer = meddled(backend, backend._algorithm.acquire(mine, join=True), meddle)
    assert isinstance(answer, Grant)
    assert entry_of(backend, mine).node == node_of(backend, mine)
    assert backend.release(mine)
    assert queue_of(backend, name) == []


def test_a_locks_node_that_goes_whenever_it_is_to_be_used(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Give up after some tries, and leave nothing."""
    from kazoo.exceptions import NoNodeError

    backend = opened(f"{server.address}/between{abs(hash(name))}")
    before = claim(backend, name)
    granted(backend, before)
    assert backend.release(before)
    mine = claim(backend, name)
    path, base = backend._algorithm.path(mine), backend.facts.base
    tried = 0

    def meddle(asked: list[str]) -> None:
        # The lock's own node is made along with ours, so what goes is the one above it.
        nonlocal tried
        if "GetChildren" in asked:
            tried += 1
            for gone in (path, base):
                ask(backend, "Delete", gone, -1)

    with pytest.raises(NoNodeError):
        meddled(backend, backend._algorithm.acquire(mine, join=True), meddle)
    assert tried == TRIES
    backend.release(mine)
    assert len(backend._entries) == 0
    granted(backend, mine)  # when nobody meddles any more
    assert backend.release(mine)


def test_no_more_locks_nodes_are_remembered_than_a_few(
    server: ZooKeeper, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm_module, "MOST_KNOWN", 2)
    backend = opened(server.address, prefix=name)
    for number in range(5):
        mine = claim(backend, f"{name}{number}")
        granted(backend, mine)
        assert backend.release(mine)
    assert 1 <= len(backend._algorithm._known) <= 2


def test_a_node_that_bears_our_name_goes_while_it_is_looked_at(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    backend, old = opened(server.address, prefix=name), opened(server.address, prefix=name)
    mine = claim(backend, name)
    first = granted(old, mine)
    # As if our request for it had been cut off, and the session had ended since.
    backend._entries.add(ZooKeeperEntry(mine, backend.facts.base, backend.clock() + 60))
    node = node_of(backend, mine)

    def meddle(asked: list[str]) -> None:
        if asked == ["Exists"] and queue_of(backend, name) == [node]:
            remove(backend, mine, node)

    answer = meddled(backend, backend._algorithm.acquire(mine, join=True), meddle)
    assert isinstance(answer, Grant)
    assert answer.fencing_token > first
    assert queue_of(backend, name) == [node_of(backend, mine)]
    assert backend.release(mine)
    assert not old.release(mine)


def test_who_waits_holds_nothing_to_renew(server: ZooKeeper, opened: Opener, name: str) -> None:
    backend = opened(server.address, prefix=name)
    other, mine = claim(backend, name), claim(backend, name)
    granted(backend, other)
    refused(backend, mine)
    assert backend.renew_many([other, mine]) == [True, False]
    assert backend.release(other)
    granted(backend, mine)
    assert backend.release(mine)


def test_a_lock_of_another_process_that_is_freed_meanwhile(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    here, there = opened(server.address, prefix=name), opened(server.address, prefix=name)
    mine = claim(here, name)
    granted(here, mine)

    def meddle(asked: list[str]) -> None:
        if asked == ["Delete"]:
            assert here.release(mine)

    algorithm: Any = there._algorithm
    assert meddled(there, algorithm.release(mine), meddle) is False
    assert queue_of(there, name) == []


def test_a_lease_that_was_doubted_for_a_moment_is_released_as_a_lost_one(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Remove its node all the same."""
    backend = opened(server.address, prefix=name)
    mine = claim(backend, name)
    granted(backend, mine)
    entry_of(backend, mine).lost = True
    assert backend.release(mine) is False
    assert queue_of(backend, name) == []


def test_a_watch_that_could_not_be_asked_for(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Tell all who wait for that node, as no watch was left behind; then look again."""
    backend = opened(server.address, prefix=name)
    other, mine = claim(backend, name), claim(backend, name)
    granted(backend, other)
    refused(backend, mine)
    entry = entry_of(backend, mine)
    talk = backend._algorithm.watch(entry)
    next(talk)
    assert entry.watching
    with pytest.raises(ConnectionError):
        talk.throw(ConnectionError("cut off"))
    assert not entry.watching
    assert entry.stale
    assert refused(backend, mine).queue
    assert backend.release(other)
    granted(backend, mine)
    assert backend.release(mine)


def test_a_node_that_must_not_be_watched(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Say what the server says, and leave no watch."""
    from kazoo.exceptions import NoAuthError
    from kazoo.security import make_acl

    backend = opened(server.address, prefix=name)
    other, mine = claim(backend, name), claim(backend, name)
    granted(backend, other)
    refused(backend, mine)
    entry = entry_of(backend, mine)
    held = f"{entry.path}/{node_of(backend, other)}"
    closed = [make_acl("world", "anyone", delete=True, admin=True)]
    client: Any = backend._session._client
    client.set_acls(held, closed)
    with pytest.raises(NoAuthError):
        meddled(backend, backend._algorithm.watch(entry), lambda asked: None)
    assert not entry.watching
    assert backend.release(other)
    granted(backend, mine)
    assert backend.release(mine)


def test_one_is_told_before_the_answer_to_its_watch_is_read(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Read the queue again, and watch the node that is then ahead: the first watch has ended."""
    backend = opened(server.address, prefix=name)
    first, second, third = (claim(backend, name) for _ in range(3))
    granted(backend, first)
    refused(backend, second)
    refused(backend, third)
    entry = entry_of(backend, third)
    talk = backend._algorithm.watch(entry)
    answer = backend._session.ask(next(talk), LIMIT)
    assert backend.release(second) is False
    soon(lambda: entry.stale)
    with pytest.raises(StopIteration):
        talk.send(answer)
    refused(backend, third)
    assert backend.queue(third, 0.01, LIMIT)
    assert entry.watching == f"{entry.path}/{node_of(backend, first)}"
    assert backend.release(first)
    soon(lambda: not entry.ahead)
    granted(backend, third)
    assert backend.release(third)


def test_one_is_told_late_of_a_node_that_it_watches_no_more(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Wait for the one that is ahead now, whose end that was not."""
    backend = opened(server.address, prefix=name)
    first, second, third = (claim(backend, name) for _ in range(3))
    granted(backend, first)
    refused(backend, second)
    refused(backend, third)
    entry = entry_of(backend, third)
    assert backend.queue(third, 0.01, LIMIT)
    gone = entry.watching
    assert backend.release(second) is False
    soon(lambda: entry.stale)
    refused(backend, third)
    assert backend.queue(third, 0.01, LIMIT)
    ahead, watching = entry.ahead, entry.watching
    entry.tell(gone, deleted=True)
    assert (entry.ahead, entry.watching) == (ahead, watching)
    refused(backend, third)
    assert backend.release(first)
    soon(lambda: not entry.ahead)
    granted(backend, third)
    assert backend.release(third)
