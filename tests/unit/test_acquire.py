"""Acquiring by hand and in a block, and by who holds it already."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from datetime import timedelta
from typing import Any

import pytest

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    lock,
)
from django_distlock.core.values import Claim, Grant, Refusal

from .tools import Conflict, Down, UnitBackend, eventually, in_thread, opened

# -- acquiring -------------------------------------------------------------------------------------


def test_acquiring_what_is_free(backend: UnitBackend) -> None:
    lease = lock("a", using=backend.alias, ttl=20, metadata={"job": 7}).acquire()
    assert isinstance(lease, Lease)
    info = backend.inspect("a")
    assert info is not None
    assert (info.name, info.fencing_token) == ("a", lease.fencing_token)
    assert info.metadata == {"job": 7}
    assert info.holder.thread == "MainThread"
    assert "test_acquire.py" in info.holder.site
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
    assert error.holder is not None
    assert error.holder.pid == os.getpid()
    assert f"Held by {error.holder}" in str(error)
    assert "tools.py" in str(error)
    assert "s unless renewed" in str(error)
    assert "Waited" not in str(error)
    with pytest.raises(LockTimeoutError, match="Waited 0.03 s: increase wait"):  # noqa: RUF043
        lock("a", using=backend.alias, wait=0.03).__enter__()
    assert held is not None
    held.release()


def test_a_refusal_of_a_store_that_tells_nothing_says_what_it_can() -> None:
    class Silent(UnitBackend):
        def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
            return Refusal()

    with opened(Silent) as backend, pytest.raises(LockNotAcquiredError) as caught:
        lock("a", using=backend.alias, wait=0).__enter__()
    assert str(caught.value) == f"Held [lock 'a', alias {backend.alias!r}]"
    assert caught.value.retry_after is None
    assert caught.value.holder is None


def test_no_limit_of_the_hold_wins_over_the_alias() -> None:
    with opened(max_hold=60.0) as backend:
        with lock("a", using=backend.alias) as lease:
            assert lease._hold.max_hold == 60.0
        with lock("a", using=backend.alias, max_hold=None) as lease:
            assert lease._hold.max_hold is None
        with lock("a", using=backend.alias, max_hold=timedelta(minutes=5)) as lease:
            assert lease._hold.max_hold == 300.0


def test_a_failing_store_is_an_error_and_the_claim_is_withdrawn(backend: UnitBackend) -> None:
    backend.after["try_acquire"].append(Down("the answer was lost"))
    with pytest.raises(LockBackendError, match="while acquiring: Down") as caught:
        lock("a", using=backend.alias).acquire()
    assert isinstance(caught.value.__cause__, Down)
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert eventually(lambda: not backend.holds("a"))


def test_conflicts_are_tried_again_in_both_modes(
    backend: UnitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.core.flow.LATE", 60.0)  # on a slow machine, too
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


def test_info(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, metadata={"why": "month end"})
    assert mine.info() is None
    with mine as lease:
        for info in (mine.info(), asyncio.run(mine.ainfo())):
            assert info is not None
            assert (info.name, info.fencing_token) == ("a", lease.fencing_token)
            assert info.metadata == {"why": "month end"}
    assert asyncio.run(mine.ainfo()) is None
    with pytest.raises(InvalidLockError, match="callable"):
        lock(lambda: "a", using=backend.alias).info()


def test_a_forced_release(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias)
    with pytest.raises(LockNotHeldError, match="it is not held"):
        mine.force_release()
    lease = in_thread(mine.acquire)
    assert lease is not None
    with pytest.raises(LockNotHeldError, match="holds it"):
        mine.force_release(fencing_token=lease.fencing_token - 1)
    broken = mine.force_release(fencing_token=lease.fencing_token)
    assert broken.fencing_token == lease.fencing_token
    assert not mine.locked()
    lease = in_thread(mine.acquire)
    assert lease is not None
    assert asyncio.run(mine.aforce_release()).fencing_token == lease.fencing_token


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
