"""A lease by hand: what it tells, renewing and releasing."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_distlock import (
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotHeldError,
    lock,
)
from django_distlock.core.flow import drift
from django_distlock.core.hold import State

from .tools import (
    Conflict,
    Down,
    UnitBackend,
    VirtualClock,
    eventually,
    in_thread,
    opened,
)

Call = Callable[[Lease], Any]

RENEW: list[tuple[str, Call]] = [
    ("renew", lambda lease: lease.renew()),
    ("arenew", lambda lease: asyncio.run(lease.arenew())),
]
RELEASE: list[tuple[str, Call]] = [
    ("release", lambda lease: lease.release()),
    ("arelease", lambda lease: asyncio.run(lease.arelease())),
]
each_renew = pytest.mark.parametrize("renew", [c for _, c in RENEW], ids=[n for n, _ in RENEW])
each_release = pytest.mark.parametrize(
    "release", [c for _, c in RELEASE], ids=[n for n, _ in RELEASE]
)


def take(backend: UnitBackend, name: str = "a", **options: Any) -> Lease:
    """Take a lock that nobody holds."""
    lease: Lease | None = lock(name, using=backend.alias, **options).acquire()
    assert lease is not None
    return lease


# -- what it is ------------------------------------------------------------------------------------


def test_it_tells_what_it_is(backend: UnitBackend) -> None:
    lease = take(backend, ttl=20)
    assert (lease.name, lease.alias, lease.ttl) == ("a", backend.alias, 20.0)
    assert isinstance(lease.fencing_token, int)
    assert 10 < lease.remaining() <= 20 - drift(20)
    assert not lease.lost
    lease.check()
    assert repr(lease) == f"<Lease 'a' alias={backend.alias!r} active>"
    assert bool(lease) is True
    lease.release()
    assert repr(lease) == f"<Lease 'a' alias={backend.alias!r} released>"
    assert lease.remaining() == 0.0
    assert not lease.lost
    assert bool(lease) is True, "'if lease' asks whether it was obtained, not whether it lasts"


def test_a_long_name_is_cut_in_its_repr(backend: UnitBackend) -> None:
    lease = take(backend, "x" * 10_000)
    assert len(repr(lease)) < 220
    assert lease.name == "x" * 10_000
    lease.release()


def test_tokens_rise(backend: UnitBackend) -> None:
    tokens = []
    for _ in range(20):
        lease = take(backend)
        tokens.append(lease.fencing_token)
        lease.release()
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_cannot_be_copied_or_pickled(
    backend: UnitBackend, copying: Callable[[Lease], Any]
) -> None:
    lease = take(backend)
    with pytest.raises(TypeError, match=r"lease\.detach\(\)"):
        copying(lease)
    lease.release()


# -- its end ---------------------------------------------------------------------------------------


def test_past_its_deadline_it_is_lost_without_asking_the_store(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        clock.advance(10 - drift(10) - 0.01)
        lease.check()
        assert lease.remaining() == pytest.approx(0.01)
        clock.advance(0.01)
        asked = len(backend.calls)
        assert lease.remaining() == 0.0
        assert lease.lost
        with pytest.raises(LeaseLostError, match="ran out") as caught:
            lease.check()
        assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
        assert len(backend.calls) == asked
        assert "lost" in repr(lease)


@each_renew
def test_what_is_lost_cannot_be_renewed(clock: VirtualClock, renew: Call) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        clock.advance(10)
        with pytest.raises(LeaseLostError):
            renew(lease)
        assert backend.count("renew") == 0


@each_release
def test_releasing_what_is_lost_is_an_error_each_time(clock: VirtualClock, release: Call) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        clock.advance(10)
        lease._hold.is_lost()
        with pytest.raises(LeaseLostError):
            release(lease)
        with pytest.raises(LockNotHeldError):
            release(lease)
        assert backend.count("release") == 0


@each_release
def test_releasing_what_was_forced_is_an_error_and_spares_the_next(
    backend: UnitBackend, release: Call
) -> None:
    lease = take(backend)
    backend.force_release("a")
    other = in_thread(lambda: take(backend))
    with pytest.raises(LeaseLostError, match="expired or was forced"):
        release(lease)
    assert lease.lost
    other.check()
    assert backend.holds("a")
    other.release()


# -- renewing --------------------------------------------------------------------------------------


@each_renew
def test_renewing_starts_the_ttl_anew(clock: VirtualClock, renew: Call) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        clock.advance(6)
        renew(lease)
        assert lease.remaining() == pytest.approx(10 - drift(10))
        lease.release()


@pytest.mark.parametrize("ttl", [60, 60.0, timedelta(minutes=1), 2, timedelta(seconds=2)])
def test_renewing_may_change_the_ttl(clock: VirtualClock, ttl: float | timedelta) -> None:
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        lease.renew(ttl)
        assert lease.ttl == seconds
        assert lease.remaining() == pytest.approx(seconds - drift(seconds))
        info = backend.inspect("a")
        assert info is not None
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert -0.01 < (info.expires_at - info.acquired_at).total_seconds() - seconds < 5
        lease.release()


@pytest.mark.parametrize("ttl", [0, -1, True, "5", float("nan"), 1e18])
def test_renewing_for_nonsense_is_refused_before_the_store_is_asked(
    backend: UnitBackend, ttl: Any
) -> None:
    lease = take(backend)
    with pytest.raises(InvalidLockError, match=r"ttl must (be|not be)") as caught:
        lease.renew(ttl)
    assert caught.value.name == "a"
    assert backend.count("renew") == 0
    lease.release()


@each_renew
def test_renewing_what_the_store_gave_away_is_a_loss(backend: UnitBackend, renew: Call) -> None:
    lease = take(backend)
    backend.drop("a")
    with pytest.raises(LeaseLostError, match="not ours any more"):
        renew(lease)
    assert lease.lost


@each_renew
def test_a_renewal_that_fails_leaves_the_old_deadline(clock: VirtualClock, renew: Call) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        clock.advance(4)
        backend.before["renew"].append(Down("x"))
        with pytest.raises(LockBackendError):
            renew(lease)
        assert lease.remaining() == pytest.approx(6 - drift(10))
        lease.check()
        renew(lease)
        assert lease.remaining() == pytest.approx(10 - drift(10))
        lease.release()


def test_a_renewal_to_a_shorter_ttl_whose_answer_is_lost_counts_as_done(
    clock: VirtualClock,
) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=100, renew=False)
        backend.after["renew"].append(Down("x"))
        with pytest.raises(LockBackendError):
            lease.renew(5)
        assert lease.ttl == 100
        assert lease.remaining() == pytest.approx(5 - drift(5))


@each_renew
def test_a_renewal_in_conflict_is_tried_again(backend: UnitBackend, renew: Call) -> None:
    lease = take(backend)
    backend.before["renew"] += [Conflict("x")] * 2
    renew(lease)
    assert backend.count("renew") == 3
    lease.release()


def test_a_renewal_in_conflict_without_end_fails_and_is_no_loss(backend: UnitBackend) -> None:
    lease = take(backend)
    backend.command_timeout = 0.3
    backend.before["renew"] += [Conflict("x")] * 100
    with pytest.raises(LockBackendError):
        lease.renew()
    backend.before["renew"].clear()
    lease.check()
    lease.release()


# -- releasing -------------------------------------------------------------------------------------


@each_release
def test_releasing_frees_it_and_only_once(backend: UnitBackend, release: Call) -> None:
    lease = take(backend)
    release(lease)
    assert not backend.holds("a")
    with pytest.raises(LockNotHeldError, match="released already") as caught:
        release(lease)
    assert not isinstance(caught.value, LeaseLostError)
    assert backend.count("release") == 1
    for refused in (lease.check, lease.renew, lease.adopt, lease.detach):
        with pytest.raises(LockNotHeldError, match="released already"):
            refused()


def test_another_thread_may_release(backend: UnitBackend) -> None:
    lease = take(backend)
    in_thread(lease.release)
    assert not backend.holds("a")


@each_release
def test_a_release_that_fails_may_be_repeated(backend: UnitBackend, release: Call) -> None:
    lease = take(backend)
    backend.before["release"].append(Down("x"))
    with pytest.raises(LockBackendError):
        release(lease)
    assert backend.holds("a")
    assert not lease._hold.renewing
    release(lease)
    assert not backend.holds("a")


def test_a_release_in_conflict_is_tried_again(backend: UnitBackend) -> None:
    lease = take(backend)
    backend.before["release"] += [Conflict("x")] * 3
    lease.release()
    assert not backend.holds("a")


@each_release
def test_a_release_that_is_interrupted_is_done_in_the_background(
    backend: UnitBackend, release: Call
) -> None:
    lease = take(backend)
    backend.before["release"].append(RuntimeError("a driver's error that is not declared"))
    with pytest.raises(RuntimeError):
        release(lease)
    assert eventually(lambda: not backend.holds("a"))
    with pytest.raises(LockNotHeldError):
        lease.release()


def test_of_two_releases_at_once_one_is_refused(backend: UnitBackend) -> None:
    lease = take(backend)
    assert lease._hold.move(State.ACTIVE, to=State.RELEASING)  # another thread is at it
    with pytest.raises(LockNotHeldError, match="being released already"):
        lease.release()
    with pytest.raises(LockNotHeldError):
        lease.check()
    assert backend.count("release") == 0


def test_nested_leases_are_freed_by_the_last_release(backend: UnitBackend) -> None:
    reentrant = lock("a", using=backend.alias, reentrant=True)
    leases = [reentrant.acquire() for _ in range(3)]
    for lease in leases:
        assert lease is not None
        assert backend.holds("a")
        lease.release()
        with pytest.raises(LockNotHeldError):
            lease.release()
    assert not backend.holds("a")
