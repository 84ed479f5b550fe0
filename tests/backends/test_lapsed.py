"""Leases that ran out and that nobody has released: told until somebody takes the lock again."""

from __future__ import annotations

import os
import time

import pytest

from django_distlock import LockBackendError, locks
from django_distlock.core.holder import this_note
from django_distlock.core.values import Claim, Grant
from tests.backends.tools import STORES, database_alias, lock_alias, unreachable
from tests.servers import chosen

ALIASES = ["locmem", *STORES, *(f"portable-{each}" for each in STORES)]
ALIASES += [f"version-{each}" for each in STORES]
ALIASES += ["redis", "scriptless-redis"] if "redis" in chosen() else []


def claim(alias: str, name: str, ttl: float) -> Claim:
    """Return a claim of somebody who does not renew."""
    note = this_note({"user": "ada"})
    return Claim(name, locks[alias].key(name), os.urandom(8).hex(), ttl, note)


@pytest.mark.parametrize("alias", ALIASES)
def test_what_ran_out_is_told_until_it_is_taken_again(alias: str, name: str) -> None:
    backend = locks[alias]
    gone, kept = claim(alias, f"{name}:gone", 0.1), claim(alias, f"{name}:kept", 60)
    freed, lost = claim(alias, f"{name}:freed", 60), claim(alias, f"{name}:gone", 60)
    grant = backend.try_acquire(gone, 5.0)
    assert isinstance(grant, Grant)
    for each in (kept, freed):
        backend.try_acquire(each, 5.0)
    backend.release(freed)
    time.sleep(0.3)
    [info] = backend.expired(name)
    assert (info.name, info.fencing_token) == (gone.name, grant.fencing_token)
    assert info.holder.pid == os.getpid()
    assert info.metadata == {"user": "ada"}
    assert info.acquired_at is not None
    assert info.expires_at is not None
    assert info.expires_at > info.acquired_at
    assert [each.name for each in backend.held(name)] == [kept.name]
    assert list(backend.expired(f"{name}:k")) == []
    backend.try_acquire(lost, 5.0)
    assert list(backend.expired(name)) == []
    for each in (kept, lost):
        backend.release(each)


@pytest.mark.parametrize("alias", ["dummy"])
def test_a_store_that_keeps_nothing_tells_of_nothing(alias: str) -> None:
    assert list(locks[alias].expired()) == []


@pytest.mark.parametrize("store", STORES)
def test_errors_of_the_store_are_ours(store: str) -> None:
    with (
        database_alias("down", unreachable(store)),
        lock_alias("down", LOCATION="down"),
        pytest.raises(LockBackendError),
    ):
        list(locks["down"].expired())
