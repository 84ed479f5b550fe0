"""Handing a lease over: to another thread or task, and as a handle to another process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from django_distlock import (
    AlreadyHeldError,
    InvalidLockBackendError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotHeldError,
    lock,
)
from django_distlock.core.flow import drift

from .test_lease import take
from .test_registry import Transaction
from .tools import Down, UnitBackend, VirtualClock, drain, eventually, in_thread, opened

# -- adopting --------------------------------------------------------------------------------------


def test_who_adopts_a_lease_is_its_holder(backend: UnitBackend) -> None:
    lease = in_thread(lambda: take(backend))
    again = lock("a", using=backend.alias, wait=0)
    assert again.acquire() is None
    lease.adopt()
    with pytest.raises(AlreadyHeldError):
        again.acquire()
    assert in_thread(again.acquire) is None
    lease.release()


def test_a_lease_of_a_thread_that_ended_is_kept_by_who_adopts_it(backend: UnitBackend) -> None:
    lease = in_thread(lambda: take(backend, ttl=0.2))
    lease.adopt()
    assert eventually(lambda: backend.count("renew") >= 6)
    lease.check()
    lease.release()


def test_a_task_may_adopt(backend: UnitBackend) -> None:
    lease = take(backend)

    async def main() -> None:
        lease.adopt()
        with pytest.raises(AlreadyHeldError):
            await lock("a", using=backend.alias).aacquire()
        await lease.arelease()

    asyncio.run(main())


def test_what_is_lost_or_released_cannot_be_adopted(backend: UnitBackend) -> None:
    lease = take(backend)
    lease._hold.lose("gone")
    with pytest.raises(LeaseLostError):
        lease.adopt()


# -- detaching and attaching -----------------------------------------------------------------------


def test_a_handle_is_json_and_takes_the_lease_elsewhere(backend: UnitBackend) -> None:
    lease = take(backend, "n\0\ud800\U0001f512", ttl=20, metadata={"job": 7})
    handle = lease.detach()
    assert isinstance(handle, str)
    assert json.loads(json.dumps(handle)) == handle
    assert handle.isascii()
    other = in_thread(lambda: Lease.attach(handle))
    assert (other.name, other.alias, other.ttl) == (lease.name, backend.alias, 20.0)
    assert other.fencing_token == lease.fencing_token
    assert other.remaining() > 10
    info = backend.inspect(lease.name)
    assert info is not None
    assert info.metadata == {"job": 7}
    other.release()
    assert not backend.holds(lease.name)


def test_attaching_in_async_code(backend: UnitBackend) -> None:
    handle = take(backend).detach()

    async def main() -> None:
        async with await Lease.aattach(handle) as lease:
            lease.check()
            with pytest.raises(AlreadyHeldError):
                await lock("a", using=backend.alias).aacquire()

    asyncio.run(main())
    assert not backend.holds("a")


def test_a_detached_lease_is_of_no_use_any_more(backend: UnitBackend) -> None:
    lease = take(backend)
    lease.detach()
    assert lease.remaining() == 0
    assert not lease.lost
    assert "released" in repr(lease) or "detached" in repr(lease)
    for refused in (lease.check, lease.renew, lease.release, lease.adopt, lease.detach):
        with pytest.raises(LockNotHeldError, match="detached"):
            refused()
    assert backend.holds("a")


def test_a_detached_lease_is_not_held_by_its_thread(backend: UnitBackend) -> None:
    lease = take(backend)
    lease.detach()
    assert lock("a", using=backend.alias, wait=0).acquire() is None


def test_a_detached_lease_is_not_renewed(backend: UnitBackend) -> None:
    lease = take(backend, ttl=0.15)
    lease.detach()
    assert eventually(lambda: not backend.holds("a"))
    assert backend.count("renew") == 0
    assert not lease.lost


def test_an_attached_lease_is_renewed_at_once_and_from_then_on(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, ttl=10, renew=False)
        handle = lease.detach()
        clock.advance(8)
        other = Lease.attach(handle)
        assert backend.count("renew") == 1
        assert other.remaining() == pytest.approx(10 - drift(10))
        other.release()


def test_attached_too_late_it_is_lost(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        handle = take(backend, ttl=10).detach()
        clock.advance(10)
        with pytest.raises(LeaseLostError) as caught:
            Lease.attach(handle)
        assert caught.value.name == "a"


def test_attached_after_its_release_it_is_lost(backend: UnitBackend) -> None:
    handle = take(backend).detach()
    Lease.attach(handle).release()
    with pytest.raises(LeaseLostError):
        Lease.attach(handle)


def test_attaching_to_a_store_that_is_down_may_be_repeated(backend: UnitBackend) -> None:
    handle = take(backend).detach()
    backend.before["renew"].append(Down("x"))
    with pytest.raises(LockBackendError):
        Lease.attach(handle)
    Lease.attach(handle).release()


def test_what_is_nested_or_in_a_transaction_is_not_detached(backend: UnitBackend) -> None:
    reentrant = lock("a", using=backend.alias, reentrant=True)
    with reentrant as lease, reentrant, pytest.raises(LockNotHeldError, match="more than once"):
        lease.detach()
    lease = take(backend, "b")
    lease._hold.bound = Transaction()
    with pytest.raises(LockNotHeldError, match="open transaction"):
        lease.detach()
    lease.release()


def test_what_is_lost_is_not_detached(backend: UnitBackend) -> None:
    lease = take(backend)
    lease._hold.lose("gone")
    with pytest.raises(LeaseLostError):
        lease.detach()


# -- handles that are none -------------------------------------------------------------------------

NO_HANDLES: list[Any] = [
    "", "x", "{}", "[]", "5", "null", '"x"', "[1, 2]", "NaN", None, 5, b"\xff", ["a"],
    "[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("handle", NO_HANDLES, ids=lambda handle: repr(handle)[:12])
def test_what_is_no_handle_is_refused(handle: Any) -> None:
    with pytest.raises(InvalidLockError, match="no handle"):
        Lease.attach(handle)


# version, alias, name, owner, ttl, token, note, renewing, max_hold, held for
CHANGES: list[tuple[int, Any]] = [
    (0, 2), (0, None), (0, "1"),
    (1, None), (1, []), (1, 5),
    (2, None), (2, 5), (2, []), (2, ""),
    (3, None), (3, 5), (3, []), (3, {}),
    (4, None), (4, 0), (4, -1), (4, "20"), (4, True), (4, 1e30), (4, float("nan")),
    (5, None), (5, "7"), (5, 7.5), (5, []), (5, True),
    (6, None), (6, 5), (6, []),
    (7, None), (7, 1), (7, "yes"),
    (8, 0), (8, -1), (8, "x"), (8, True), (8, []),
    (9, -1), (9, "x"), (9, True), (9, []),
    (11, 1), (11, []),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), CHANGES)
def test_a_handle_with_a_part_of_the_wrong_kind_is_refused(
    backend: UnitBackend, place: int, value: Any
) -> None:
    parts = json.loads(take(backend).detach())
    parts[place] = value
    with pytest.raises(InvalidLockError, match="no handle"):
        Lease.attach(json.dumps(parts))
    assert backend.count("renew") == 0
    assert backend.holds("a")


@pytest.mark.parametrize("parts", [slice(0, 9), slice(1, 10), slice(0, 1)])
def test_a_handle_that_is_cut_is_refused(backend: UnitBackend, parts: slice) -> None:
    handle = json.loads(take(backend).detach())
    with pytest.raises(InvalidLockError, match="no handle"):
        Lease.attach(json.dumps(handle[parts]))
    with pytest.raises(InvalidLockError, match="no handle"):
        Lease.attach(json.dumps([*handle, "more"]))


def test_its_options_go_along(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        lease = take(backend, renew=False, max_hold=60)
        clock.advance(20)
        other = Lease.attach(lease.detach())
        assert not other._hold.renewing
        assert other._hold.max_hold == 60
        assert clock() - other._hold.acquired == pytest.approx(20)
        other.release()


def test_what_a_transaction_keeps_is_not_detached(backend: UnitBackend) -> None:
    # It would be released at the commit, by this process, while another one works under it.
    lease = take(backend)
    lease._hold.deferred = object()
    with pytest.raises(LockNotHeldError, match="transaction"):
        lease.detach()
    lease._hold.deferred = None
    lease.release()


@pytest.mark.parametrize(("place", "value"), [(2, "b"), (3, "0" * 32), (3, "")])
def test_a_handle_of_another_lock_or_owner_is_not_ours(
    backend: UnitBackend, place: int, value: str
) -> None:
    parts = json.loads(take(backend).detach())
    parts[place] = value
    with pytest.raises(LeaseLostError):
        Lease.attach(json.dumps(parts))
    drain(backend)
    assert backend.holds("a")
    assert backend.count("release") == 0


def test_a_handle_of_an_alias_that_is_not_configured_names_it(backend: UnitBackend) -> None:
    parts = json.loads(take(backend).detach())
    parts[1] = "nowhere"
    with pytest.raises(InvalidLockBackendError, match="'nowhere'"):
        Lease.attach(json.dumps(parts))


def test_a_handle_is_not_used_up(backend: UnitBackend) -> None:
    taken = lock("a", using=backend.alias).acquire()
    assert taken
    handle = taken.detach()
    first, second = Lease.attach(handle), Lease.attach(handle)
    first.check()
    second.check()
    assert first.fencing_token == second.fencing_token
    first.release()
    with pytest.raises(LeaseLostError):
        second.release()
