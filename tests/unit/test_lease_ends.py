"""The end of a lease: as a context manager, and told of its loss."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from django_distlock import (
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotHeldError,
    lock,
)

from .test_lease import take
from .tools import (
    LIMIT,
    Down,
    UnitBackend,
    drain,
    eventually,
)

# -- as a context manager --------------------------------------------------------------------------


def test_a_block_releases_it(backend: UnitBackend) -> None:
    with take(backend) as lease:
        assert backend.holds("a")
    assert not backend.holds("a")
    assert lease.remaining() == 0

    async def main() -> None:
        got = await lock("a", using=backend.alias).aacquire()
        assert got is not None
        async with got as same:
            assert same is got
            assert backend.holds("a")

    asyncio.run(main())
    assert not backend.holds("a")


def test_a_release_in_the_block_is_on_purpose(backend: UnitBackend) -> None:
    with take(backend) as lease:
        lease.release()
    with take(backend) as lease:
        lease.detach()
    assert backend.count("release") == 1


def test_a_block_whose_lease_is_lost_raises(backend: UnitBackend) -> None:
    with pytest.raises(LeaseLostError), take(backend):
        backend.force_release("a")


def test_the_bodys_error_wins_and_ours_is_logged(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    def body() -> None:
        with take(backend):
            backend.force_release("a")
            raise KeyError("the body's")

    with pytest.raises(KeyError):
        body()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "While another error ended the block" in record.getMessage()
    assert "expired or was forced" in record.getMessage()


def test_a_block_whose_release_fails_raises_and_releases_later(backend: UnitBackend) -> None:
    with pytest.raises(LockBackendError), take(backend) as lease:
        backend.before["release"].append(Down("x"))
    assert eventually(lambda: not backend.holds("a"))
    with pytest.raises(LockNotHeldError):
        lease.release()


def test_after_a_block_whose_release_failed_the_lock_can_be_taken_again(
    backend: UnitBackend,
) -> None:
    # The error keeps the frames, and those the lease: it must not count as held.
    backend.before["release"] += [Down("x")] * 2
    with pytest.raises(LockBackendError), take(backend) as lease:
        pass
    again = lock("a", using=backend.alias, wait=LIMIT).acquire()
    assert again is not None
    assert again.fencing_token > lease.fencing_token
    drain(backend)
    again.check()
    again.release()


# -- told of the loss ------------------------------------------------------------------------------


def test_callbacks_are_called_off_the_watchdog_with_the_lease(backend: UnitBackend) -> None:
    lease = take(backend)
    told: list[tuple[int, bool, str]] = []

    def callback(lost: Lease) -> None:
        told.append((lost.fencing_token, lost.lost, threading.current_thread().name[:18]))

    lease.on_lost(callback)
    lease.on_lost(callback)
    lease._hold.lose("gone")
    assert eventually(lambda: len(told) == 2)
    assert told == [(lease.fencing_token, True, "distlock-callback-")] * 2


def test_a_callback_that_hangs_silences_no_other(backend: UnitBackend) -> None:
    hangs, told = threading.Event(), threading.Event()
    first = lock("first", using=backend.alias).acquire()
    second = lock("second", using=backend.alias).acquire()
    assert first
    assert second
    first.on_lost(lambda _: hangs.wait(LIMIT))
    second.on_lost(lambda _: told.set())
    try:
        first._hold.lose("gone")
        second._hold.lose("gone")
        assert told.wait(LIMIT / 2), "the first callback is waited for"
    finally:
        hangs.set()


def test_a_callback_that_comes_after_the_loss_is_called_too(backend: UnitBackend) -> None:
    lease = take(backend)
    lease._hold.lose("gone while nobody looked")
    told: list[Lease] = []
    lease.on_lost(told.append)
    drain(backend)
    assert [lost.name for lost in told] == ["a"]


def test_a_callback_may_use_the_lease_and_take_the_lock_anew(backend: UnitBackend) -> None:
    """Told of a loss it releases what is lost, waits for the lock, and nothing waits for it."""
    lease = take(backend, ttl=0.2)
    done: list[int] = []

    def callback(lost: Lease) -> None:
        with pytest.raises(LeaseLostError):
            lost.release()
        with lock("a", using=backend.alias, wait=10) as again:
            done.append(again.fencing_token)

    lease.on_lost(callback)
    backend.drop("a")
    assert eventually(lambda: done)
    assert done[0] > lease.fencing_token
    assert eventually(lambda: not backend.holds("a"))


def test_callbacks_are_not_called_for_a_release(backend: UnitBackend) -> None:
    lease = take(backend)
    told: list[Lease] = []
    lease.on_lost(told.append)
    lease.release()
    drain(backend)
    assert told == []


def test_a_loss_that_the_release_finds_is_told_as_well(backend: UnitBackend) -> None:
    lease = take(backend)
    told: list[Lease] = []
    lease.on_lost(told.append)
    backend.force_release("a")
    with pytest.raises(LeaseLostError):
        lease.release()
    drain(backend)
    assert [lost.name for lost in told] == ["a"]


def test_a_callback_that_fails_breaks_nothing(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(lease: Lease) -> None:
        raise ValueError("the callback's own")

    lease = take(backend)
    told: list[Lease] = []
    lease.on_lost(broken)
    lease.on_lost(told.append)
    lease._hold.lose("gone")
    drain(backend)
    assert [lost.name for lost in told] == ["a"]
    assert "the callback's own" in caplog.text
