"""Shared locks on a quorum of nodes, some of which are down, or have forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from django_distlock import lock
from django_distlock.backends.redlock import RedlockBackend
from django_distlock.backends.redlock.inspect import QuorumInfo
from django_distlock.backends.redlock.rounds import script
from django_distlock.core.values import Claim, HolderInfo
from tests.claims import claim, granted, opening, refused, soon
from tests.redlock import NODES

Opener: TypeAlias = Callable[[], RedlockBackend]


def _settings(alias: str) -> dict[str, Any]:
    return {
        "BACKEND": "django_distlock.backends.redlock.RedlockBackend",
        "LOCATION": [node.url() for node in NODES[:3]],
        "PREFIX": alias,
    }


@pytest.fixture
def backend() -> Iterator[RedlockBackend]:
    """An alias on three nodes."""
    with opening(RedlockBackend, _settings) as opened:
        yield opened()


def sharing(backend: RedlockBackend, name: str, ttl: float = 20.0) -> Claim:
    """Return a claim that shares, by a new owner."""
    note = HolderInfo(shared=True).dumps()
    return claim(backend, name, ttl)._replace(shared=True, note=note)


def key_of(backend: RedlockBackend, mine: Claim) -> str:
    """Return the lock's key on a node."""
    return backend._names.lock(mine.key)


def test_the_vote_of_each_node_names_all_who_share(backend: RedlockBackend) -> None:
    one, two = sharing(backend, "a"), sharing(backend, "a")
    tokens = {granted(backend, each) for each in (one, two)}
    found = backend.holders("a")
    assert {info.fencing_token for info in found} == tokens
    assert [info.shared for info in found] == [True, True]
    assert {info.fencing_token for info in backend.held()} == tokens
    for info in found:
        assert isinstance(info, QuorumInfo)
        assert all(vote.count("with token") == 2 for vote in info.votes.values())
    assert backend.release(one)
    assert backend.release(two)
    assert backend.holders("a") == []
    assert list(backend.held()) == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_late_undoing_frees_no_later_attempt(backend: RedlockBackend, shared: bool) -> None:
    """A node that was slow reads it after the next attempt of the same owner was granted."""
    mine = sharing(backend, "a") if shared else claim(backend, "a")
    granted(backend, mine)
    source, earlier = script("release").source, "0" * 16
    words = (key_of(backend, mine), backend._names.index, mine.owner, earlier)
    for node in NODES[:3]:
        assert node.execute("EVAL", source, "2", *words) == "0"
    refused(backend, claim(backend, "a"), 0.0)
    assert backend.release(mine)


def test_a_share_is_put_back_where_it_was_lost(backend: RedlockBackend) -> None:
    """A node that forgot it has it again by the next renewal; then no two nodes let a writer in."""
    mine, alone = sharing(backend, "a"), claim(backend, "a")
    granted(backend, mine)
    NODES[0].execute("DEL", key_of(backend, mine), f"{key_of(backend, mine)}:shares")
    assert backend.renew(mine)
    soon(lambda: NODES[0].execute("HLEN", f"{key_of(backend, mine)}:shares") == "1")
    NODES[1].execute("DEL", key_of(backend, mine), f"{key_of(backend, mine)}:shares")
    refused(backend, alone, 0.0)
    assert backend.release(mine)
    granted(backend, alone)
    assert backend.release(alone)


def test_a_share_is_not_put_back_where_a_writer_is(backend: RedlockBackend) -> None:
    """A minority that has another holder stays as it is."""
    mine, alone = sharing(backend, "a"), claim(backend, "a")
    granted(backend, mine)
    key = key_of(backend, mine)
    NODES[0].execute("DEL", key, f"{key}:shares")
    value = f"{0:013}{1:016}{1:016}{0:016}{alone.owner}\na\n"
    NODES[0].execute("SET", key, value, "PX", "20000")
    assert backend.renew(mine)
    assert NODES[0].execute("EXISTS", f"{key}:shares") == "0"
    NODES[0].execute("DEL", key)
    assert backend.release(mine)


def test_a_writer_that_waits_keeps_new_ones_out(backend: RedlockBackend) -> None:
    """For a second after it last asked; who shares it already is not touched."""
    mine, later, alone = sharing(backend, "a"), sharing(backend, "a"), claim(backend, "a")
    token = granted(backend, mine)
    refused(backend, alone, 1.0)
    refused(backend, later, 0.0)
    assert granted(backend, mine) == token
    assert backend.release(mine)
    refused(backend, later, 0.0)
    assert granted(backend, alone) > token
    assert backend.release(alone)
    granted(backend, later)
    assert backend.release(later)


def test_what_is_shared_where_a_node_did_not_hear_of_it(backend: RedlockBackend) -> None:
    """Downgrade on a quorum; the third node follows with the next renewal."""
    mine = claim(backend, "a")._replace(note="{}")
    granted(backend, mine)
    key = key_of(backend, mine)
    shared = mine._replace(shared=True, note=HolderInfo(shared=True).dumps())
    before = NODES[0].execute("GET", key)
    assert backend.renew(shared)
    NODES[0].execute("DEL", f"{key}:shares")
    NODES[0].execute("SET", key, before, "PX", "700000000")
    beside = sharing(backend, "a")
    granted(backend, beside)  # by the two others
    assert backend.renew(shared)
    soon(lambda: NODES[0].execute("HLEN", f"{key}:shares") == "1")
    assert backend.release(shared)
    assert backend.release(beside)
    assert backend.holders("a") == []


def test_nothing_is_kept_of_a_share_but_the_token(backend: RedlockBackend) -> None:
    with lock("a", shared=True, using=backend.alias):
        pass
    mine = claim(backend, "a")
    for node in NODES[:3]:
        assert node.execute("EXISTS", f"{key_of(backend, mine)}:shares") == "0"
        assert node.execute("ZSCORE", backend._names.index, key_of(backend, mine)) == ""
