"""The two backends that need no store: locks in memory, and none at all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_distlock import (
    LockNotHeldError,
    lock,
)
from django_distlock.backends.dummy import DummyBackend
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.conf import AliasConf
from django_distlock.core.values import Grant, Refusal

from .tools import (
    UnitBackend,
    VirtualClock,
    claim_of,
    in_thread,
    opened,
)

# -- locmem ------------------------------------------------------------------------------------


def test_the_same_owner_is_granted_the_same_token_with_its_ttl_anew(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        claim = claim_of(backend, "a", ttl=10)
        first = backend.try_acquire(claim, 1.0)
        clock.advance(9)
        assert backend.try_acquire(claim, 1.0) == first
        clock.advance(9)
        refusal = backend.try_acquire(claim_of(backend, "a", owner="other"), 1.0)
        assert isinstance(refusal, Refusal)
        assert refusal.remaining == pytest.approx(1.0)
        clock.advance(1)
        assert not backend.renew(claim)
        assert not backend.release(claim)
        assert backend.inspect("a") is None
        assert list(backend.scan("")) == []
        second = backend.try_acquire(claim_of(backend, "a", owner="other"), 1.0)
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert second.fencing_token > first.fencing_token


def test_the_moment_of_the_grant_is_the_same_at_every_look(backend: UnitBackend) -> None:
    claim = claim_of(backend, "a")
    before = datetime.now(UTC)
    backend.try_acquire(claim, 1.0)
    after = datetime.now(UTC)
    seen = set()
    for _ in range(50):
        info = backend.inspect("a")
        assert info
        assert info.acquired_at is not None
        seen.add(info.acquired_at)
        backend.renew(claim)
    (acquired,) = seen
    assert before <= acquired <= after


def test_aliases_of_one_location_share_their_locks() -> None:
    with (
        opened(location="a place of two") as one,
        opened(location="a place of two") as other,
        lock("a", using=one.alias),
    ):
        assert lock("a", using=other.alias, wait=0).acquire() is None


def test_a_forked_child_begins_with_none(backend: UnitBackend) -> None:
    backend.try_acquire(claim_of(backend, "a"), 1.0)
    with backend._space.mutex:  # as if another thread had been inside at the fork
        backend.forget_parent()
        assert not backend.holds("a")


def test_it_says_that_it_is_of_one_process() -> None:
    assert LocMemBackend.scope == DummyBackend.scope == "process"
    assert LocMemBackend.exclusive
    assert not DummyBackend.exclusive


# -- dummy -------------------------------------------------------------------------------------


def test_the_dummy_lets_everybody_in_with_rising_tokens(name: str) -> None:
    mine = lock(name, using="dummy", wait=0)
    with mine as lease:
        other = in_thread(mine.acquire)
        assert other is not None
        assert other.fencing_token > lease.fencing_token
        lease.renew()
        lease.check()
        assert not mine.locked()
        other.release()
    dummy = DummyBackend("dummy", AliasConf(backend="x"))
    assert list(dummy.held()) == []
    with pytest.raises(LockNotHeldError):
        dummy.force_release("a")
