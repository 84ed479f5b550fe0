"""`Lock`: the value, its validation, and acquiring by hand and in a block."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import logging
import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_distlock import (
    UNSET,
    AlreadyHeldError,
    InvalidLockBackendError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    Lock,
    LockBackendError,
    LockNotAcquiredError,
    LockTimeoutError,
    lock,
    lock_for,
)
from django_distlock.models import LockRow

from .tools import Conflict, Down, UnitBackend, eventually, in_thread, opened

CONSTANT = lock("a module's constant", using="locmem", wait=0)


def by_name(value: str) -> str:
    """Name a lock, as a callable that pickles."""
    return value


# -- the value -------------------------------------------------------------------------------------


def test_equal_options_make_equal_locks() -> None:
    assert lock("a") == lock("a") == Lock(name="a")
    assert lock("a") != lock("b")
    assert lock("a") != lock("a", ttl=5)
    assert hash(lock("a", ttl=5)) == hash(lock("a", ttl=5))
    assert len({lock("a"), lock("a"), lock("b")}) == 2


def test_a_lock_with_metadata_or_a_default_can_be_a_key() -> None:
    one = lock("a", metadata={"job": [7]}, default=[])
    assert hash(one) == hash(lock("a", metadata={"job": [7]}, default=[]))
    assert one != lock("a", metadata={"job": [8]}, default=[])


@pytest.mark.parametrize(
    "value",
    [
        lock("a"),
        lock("a\0\ud800", using="locmem", ttl=5, wait=None, renew=False, reentrant=True),
        lock("a", max_hold=None, on_contention="skip", default=7, metadata={"a": [1]}),
        lock(by_name, wait=timedelta(seconds=5)),
    ],
)
@pytest.mark.parametrize(
    "copying",
    [
        lambda value: pickle.loads(pickle.dumps(value)),
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
    ],
    ids=["pickle", "copy", "deepcopy", "replace"],
)
def test_a_lock_is_a_plain_value(value: Lock, copying: Callable[[Lock], Lock]) -> None:
    twin = copying(value)
    assert twin == value
    assert twin is not value or copying is copy.copy
    assert twin.ttl is value.ttl or value.ttl is not UNSET


def test_a_lock_cannot_be_changed_but_replaced() -> None:
    value = lock("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "b"  # type: ignore[misc]
    assert dataclasses.replace(value, name="b") == lock("b")
    with pytest.raises(InvalidLockError):
        dataclasses.replace(value, name="")


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        lock("a", "locmem")  # type: ignore[call-arg]


def test_making_a_lock_asks_no_settings() -> None:
    assert lock("a", using="not configured").using == "not configured"
    with pytest.raises(InvalidLockBackendError, match="no alias 'not configured'"):
        lock("a", using="not configured").acquire()


def test_a_constant_is_used_again_and_again() -> None:
    tokens = []
    for _ in range(3):
        with CONSTANT as lease:
            tokens.append(lease.fencing_token)
            assert in_thread(CONSTANT.acquire) is None
    assert tokens == sorted(set(tokens))


REFUSED: list[dict[str, Any]] = [
    {"name": ""}, {"name": None}, {"name": 5}, {"name": b"a"},
    {"ttl": 0}, {"ttl": -1}, {"ttl": True}, {"ttl": "5"}, {"ttl": None}, {"ttl": float("nan")},
    {"ttl": float("inf")}, {"ttl": 10**400}, {"ttl": timedelta(0)}, {"ttl": 1e15},
    {"wait": -1}, {"wait": True}, {"wait": "5"}, {"wait": float("nan")}, {"wait": float("inf")},
    {"wait": timedelta(-1)},
    {"max_hold": 0}, {"max_hold": -1}, {"max_hold": False}, {"max_hold": "5"},
    {"on_contention": "explode"}, {"on_contention": None}, {"on_contention": 5},
]  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED, ids=str)
def test_nonsense_is_refused_when_the_lock_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidLockError) as caught:
        lock(**{"name": "a", "using": "shop", **wrong})
    assert caught.value.alias == "shop"
    assert caught.value.name in ("a", "", None)


@pytest.mark.parametrize("wait", [-1, True, "5", float("nan"), float("inf")])
def test_a_wait_given_late_is_judged_as_well(backend: UnitBackend, wait: Any) -> None:
    with pytest.raises(InvalidLockError, match="wait is"):
        lock("a", using=backend.alias).acquire(wait=wait)
    assert backend.calls == []


def test_a_ttl_beyond_the_stores_range_is_refused() -> None:
    class Short(UnitBackend):
        longest_ttl = 60.0

    with opened(Short) as backend:
        with pytest.raises(InvalidLockError, match="60 seconds"):
            lock("a", using=backend.alias, ttl=61).acquire()
        assert backend.calls == []
        with lock("a", using=backend.alias, ttl=60) as lease, pytest.raises(InvalidLockError):
            lease.renew(61)


@pytest.mark.parametrize("metadata", [{"a": object()}, {("a",): 1}, 5, {"a": {1, 2}}])
def test_metadata_that_json_cannot_hold_is_refused(backend: UnitBackend, metadata: Any) -> None:
    with pytest.raises(InvalidLockError, match="metadata") as caught:
        lock("a", using=backend.alias, metadata=metadata).acquire()
    assert caught.value.name == "a"
    assert backend.calls == []


def test_a_callable_name_is_only_for_decorators(backend: UnitBackend) -> None:
    mine = lock(by_name, using=backend.alias)
    for use in (mine.acquire, mine.locked, mine.__enter__):
        with pytest.raises(InvalidLockError, match="for decorators"):
            use()


# -- acquiring -------------------------------------------------------------------------------------


def test_acquiring_what_is_free(backend: UnitBackend) -> None:
    lease = lock("a", using=backend.alias, ttl=20, metadata={"job": 7}).acquire()
    assert isinstance(lease, Lease)
    info = backend.inspect("a")
    assert info is not None
    assert (info.name, info.fencing_token) == ("a", lease.fencing_token)
    assert info.metadata == {"job": 7}
    assert info.holder.thread == "MainThread"
    assert "test_lock.py" in info.holder.site
    assert "test_acquiring_what_is_free" in info.holder.site
    lease.release()


@pytest.mark.parametrize("wait", [0, 0.05, timedelta(milliseconds=50)])
def test_acquiring_what_another_holds_returns_none(backend: UnitBackend, wait: Any) -> None:
    held = in_thread(lock("a", using=backend.alias).acquire)
    assert held is not None
    assert lock("a", using=backend.alias, wait=wait).acquire() is None
    assert lock("a", using=backend.alias).acquire(wait=wait) is None
    assert asyncio.run(lock("a", using=backend.alias).aacquire(wait=wait)) is None
    held.release()


def test_the_wait_of_a_call_wins_over_the_locks_and_that_over_the_settings() -> None:
    with opened(wait=0.0) as backend:
        held = in_thread(lock("a", using=backend.alias).acquire)
        with pytest.raises(LockNotAcquiredError) as caught, lock("a", using=backend.alias):
            pytest.fail("two holders")
        assert not isinstance(caught.value, LockTimeoutError)
        asked = backend.count("try_acquire")
        assert lock("a", using=backend.alias, wait=60).acquire(wait=0) is None
        assert backend.count("try_acquire") == asked + 1
        assert lock("a", using=backend.alias, wait=0.05).acquire() is None
        assert backend.count("try_acquire") > asked + 2
        assert held is not None
        held.release()


def test_waiting_ends_with_the_release(backend: UnitBackend) -> None:
    held = in_thread(lock("a", using=backend.alias).acquire)
    assert held is not None
    asked = backend.count("try_acquire")

    def free_when_asked_twice() -> None:
        assert eventually(lambda: backend.count("try_acquire") >= asked + 2)
        held.release()

    async def main() -> Lease | None:
        return await lock("a", using=backend.alias, wait=None).aacquire()

    thread = threading.Thread(target=free_when_asked_twice)
    thread.start()
    lease = asyncio.run(main())
    thread.join()
    assert lease is not None
    assert lease.fencing_token > held.fencing_token
    lease.release()


def test_a_refusal_says_who_holds_it_and_for_how_long(backend: UnitBackend) -> None:
    held = in_thread(lock("a", using=backend.alias, ttl=20).acquire)
    with pytest.raises(LockNotAcquiredError) as caught, lock("a", using=backend.alias, wait=0):
        pytest.fail("two holders")
    error = caught.value
    assert not isinstance(error, LockTimeoutError)
    assert (error.name, error.alias) == ("a", backend.alias)
    assert error.retry_after == pytest.approx(20, abs=1)
    assert "Held by" in str(error)
    assert "tools.py" in str(error)
    assert "s unless renewed" in str(error)
    assert "Waited" not in str(error)
    with pytest.raises(LockTimeoutError, match="Waited 0.03 s: raise wait"):  # noqa: RUF043
        lock("a", using=backend.alias, wait=0.03).__enter__()
    assert held is not None
    held.release()


def test_a_failing_store_is_an_error_and_the_claim_is_withdrawn(backend: UnitBackend) -> None:
    backend.after["try_acquire"].append(Down("the answer was lost"))
    with pytest.raises(LockBackendError, match="failed at try acquire: Down") as caught:
        lock("a", using=backend.alias).acquire()
    assert isinstance(caught.value.__cause__, Down)
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert eventually(lambda: not backend.holds("a"))


def test_conflicts_are_tried_again_in_both_worlds(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, wait=0)
    backend.before["try_acquire"] += [Conflict("x")] * 3
    with mine:
        assert backend.holds("a")

    async def main() -> None:
        backend.before["try_acquire"] += [Conflict("x")] * 3
        async with mine:
            assert backend.holds("a")

    asyncio.run(main())


def test_a_metadata_note_may_hold_anything_readable(backend: UnitBackend) -> None:
    with lock("n\0\U0001f512", using=backend.alias, metadata={"\ud800": "\0"}):
        info = backend.inspect("n\0\U0001f512")
    assert info is not None
    assert info.metadata == {"\ud800": "\0"}


def test_locked(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias)
    assert mine.locked() is False
    with mine:
        assert mine.locked() is True
        assert in_thread(mine.locked) is True
        assert asyncio.run(mine.alocked()) is True
        assert lock("b", using=backend.alias).locked() is False
    assert asyncio.run(mine.alocked()) is False
    backend.before["inspect"].append(Down("x"))
    with pytest.raises(LockBackendError):
        mine.locked()


# -- the holder again --------------------------------------------------------------------------


def test_taking_it_twice_is_an_error_at_once(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, wait=None)
    with mine as lease:
        with pytest.raises(AlreadyHeldError, match="reentrant=True") as caught:
            mine.acquire()
        assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
        lease.check()
    assert not backend.holds("a")


def test_reentry_may_be_set_for_the_alias() -> None:
    with opened(reentrant=True) as backend:
        with lock("a", using=backend.alias) as outer, lock("a", using=backend.alias) as inner:
            assert outer.fencing_token == inner.fencing_token
        with lock("a", using=backend.alias), pytest.raises(AlreadyHeldError):
            lock("a", using=backend.alias, reentrant=False).acquire()


def test_what_the_store_gave_away_is_not_held_already(backend: UnitBackend) -> None:
    # After a flush or a forced release the registry must not poison what follows.
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    backend.drop("a")
    again = lock("a", using=backend.alias, wait=0).acquire()
    assert again is not None
    assert again.fencing_token > lease.fencing_token
    assert lease.lost
    with pytest.raises(LeaseLostError):
        lease.release()
    again.release()


def test_what_another_took_meanwhile_is_waited_for(backend: UnitBackend) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    backend.drop("a")
    other = in_thread(lock("a", using=backend.alias).acquire)
    assert other is not None
    assert lock("a", using=backend.alias, wait=0).acquire() is None
    assert lease.lost
    other.release()


def test_a_store_that_is_down_when_asked_again_says_so(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias):
        backend.before["renew"].append(Down("x"))
        with pytest.raises(LockBackendError):
            lock("a", using=backend.alias).acquire()


def test_a_nested_loss_is_told_to_each_block(backend: UnitBackend) -> None:
    # Both did work that another holder may have done as well.
    mine = lock("a", using=backend.alias, reentrant=True)

    def inner() -> None:
        with mine as lease:
            lease._hold.lose("gone")

    with pytest.raises(LeaseLostError), mine, pytest.raises(LeaseLostError):
        inner()


# -- named after an instance -------------------------------------------------------------------


def test_a_lock_is_named_after_an_instance() -> None:
    row = LockRow(digest="ab" * 32)
    assert lock_for(row, using="locmem", ttl=5) == lock(
        f"django_distlock.lockrow:{'ab' * 32}", using="locmem", ttl=5
    )


def test_a_proxy_names_the_same_lock() -> None:
    row = LockRow(digest="a")

    class Deferred(LockRow):
        class Meta:
            proxy = True
            app_label = "django_distlock_tests"

    assert lock_for(Deferred(digest="a")) == lock_for(row)


def test_an_instance_without_a_key_names_no_lock() -> None:
    with pytest.raises(InvalidLockError, match="save it"):
        lock_for(LockRow(digest=None))  # type: ignore[misc]


# -- logging -----------------------------------------------------------------------------------


def test_what_happens_is_logged_with_a_short_name(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "django_distlock"), lock("x" * 5000, using=backend.alias):
        pass
    texts = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("Acquired lock 'xxx") for text in texts)
    assert any(text.startswith("Released lock 'xxx") for text in texts)
    assert all(len(text) < 300 for text in texts)
