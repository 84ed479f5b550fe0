"""Many locks renewed by one question to each node: each is judged by its own votes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import redis

from django_distlock import locks
from django_distlock.backends.redlock import RedlockBackend
from django_distlock.backends.redlock.rounds import QuorumError
from django_distlock.core.values import Claim
from tests.claims import claim, granted, refused
from tests.redlock import NODES


@pytest.fixture
def backend() -> RedlockBackend:
    """Return the alias that has its locks on three nodes."""
    backend = locks["redlock-3"]
    assert isinstance(backend, RedlockBackend)
    return backend


@pytest.fixture
def clients() -> Iterator[list[Any]]:
    """Give a client of each of the three."""
    with ExitStack() as stack:
        yield [stack.enter_context(redis.Redis.from_url(node.url())) for node in NODES[:3]]


@pytest.fixture
def claims(backend: RedlockBackend) -> Iterator[list[Claim]]:
    """Give claims that hold their locks."""
    name = secrets.token_hex(6)
    claims = [claim(backend, f"{name}:{number}") for number in range(5)]
    for each in claims:
        granted(backend, each)
    yield claims
    for each in claims:
        backend.release(each)


def renewed(backend: RedlockBackend, claims: list[Claim], mode: str) -> list[bool]:
    """Renew in either mode."""
    if mode == "sync":
        return backend.renew_many(claims)
    return asyncio.run(backend.arenew_many(claims))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_each_is_judged_by_itself(
    backend: RedlockBackend, clients: list[Any], claims: list[Claim], mode: str
) -> None:
    _, wiped, halved, taken, last = keys = [backend._names.lock(each.key) for each in claims]
    for key in keys:
        for client in clients:
            client.pexpire(key, client.pttl(key) - 5_000)
    stored = clients[0].get(wiped)
    clients[0].delete(wiped)
    for client in clients[:2]:
        client.delete(halved, taken)
    granted(backend, thief := claim(backend, claims[3].name))
    assert renewed(backend, claims, mode) == [True, True, False, False, True]
    # What a quorum has is put back with its token, and what it has not is nobody's there.
    assert clients[0].get(wiped)[13:29] == stored[13:29]
    assert [client.exists(halved) for client in clients] == [0, 0, 1]
    kept = round(backend.conf.retention * 1000)
    for key in (keys[0], wiped, last):
        assert all(18_000 < client.pttl(key) - kept <= 20_000 for client in clients)
    assert backend.release(thief)
    backend.release(claims[2])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_key_of_another_kind_costs_its_nodes_vote(
    backend: RedlockBackend, clients: list[Any], claims: list[Claim], mode: str
) -> None:
    key = backend._names.lock(claims[2].key)
    kinds = [(client, client.get(key)) for client in clients[:2]]
    try:
        for number, (client, _) in enumerate(kinds):
            client.delete(key)
            client.lpush(key, "not a lock")
            if not number:
                assert renewed(backend, claims, mode) == [True] * 5
        with pytest.raises(QuorumError, match=r"1 of 3 nodes answered.*WRONGTYPE"):
            renewed(backend, claims, mode)
    finally:
        for client, value in kinds:
            client.set(key, value, px=20_000)


def test_more_than_go_into_one_question(backend: RedlockBackend) -> None:
    name = secrets.token_hex(6)
    claims = [claim(backend, f"{name}:{number}") for number in range(501)]
    for each in claims[::100]:
        granted(backend, each)
    assert backend.renew_many(claims) == [not number % 100 for number in range(501)]
    for each in claims[::100]:
        assert backend.release(each)


def test_aliases_with_other_retentions_exclude_each_other(backend: RedlockBackend) -> None:
    """Asked again by its owner through an alias with a shorter one, a lock stays its owner's."""
    name = secrets.token_hex(6)
    conf = replace(backend.conf, retention=3600.0)
    other = RedlockBackend("redlock-short", conf)
    try:
        mine, theirs = claim(backend, name), claim(backend, name)
        token = granted(backend, mine)
        assert granted(other, mine) == token
        refused(backend, theirs)
        assert backend.renew(mine)
        assert backend.release(mine)
    finally:
        other.close()
