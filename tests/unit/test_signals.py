"""Signals: what each is sent with, in both modes, and that no receiver breaks a lock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.dispatch import Signal

from django_distlock import Lease, LeaseLostError, Lock, LockNotAcquiredError, lock, signals
from django_distlock.core.values import Holder
from django_distlock.signals import (
    Tell,
    lock_acquired,
    lock_released,
)

from .tools import UnitBackend, drain, eventually, in_thread

ALL = {name: getattr(signals, name) for name in signals.__all__}


LATER = {"lock_failed"}
"""Signals that a plain hold does not send."""


@pytest.fixture
def told(backend: UnitBackend) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Every signal that was sent for the backend, with its keyword arguments."""
    seen: list[tuple[str, dict[str, Any]]] = []
    receivers: list[tuple[Signal, Callable[..., None]]] = []
    for name, signal in ALL.items():

        def receive(_which: str = name, **given: Any) -> None:
            given.pop("signal")
            if given["sender"] == backend.alias:  # others' leases may be renewed meanwhile
                seen.append((_which, given))

        signal.connect(receive, weak=False)
        receivers.append((signal, receive))
    yield seen
    for signal, receive in receivers:
        signal.disconnect(receive)


def take(backend: UnitBackend, mode: str, **options: Any) -> Lease:
    """Acquire in either mode."""
    mine: Lock = lock("a", using=backend.alias, **options)
    got = mine.acquire() if mode == "sync" else asyncio.run(mine.aacquire())
    assert got is not None
    return got


def end(lease: Lease, mode: str) -> None:
    """Release in either mode."""
    if mode == "sync":
        lease.release()
    else:
        asyncio.run(lease.arelease())


modes = pytest.mark.parametrize("mode", ["sync", "async"])
Told = list[tuple[str, dict[str, Any]]]


@modes
def test_a_hold_from_its_grant_to_its_release(mode: str, backend: UnitBackend, told: Told) -> None:
    lease = take(backend, mode)
    if mode == "sync":
        lease.renew(60)
    else:
        asyncio.run(lease.arenew(60))
    token = lease.fencing_token
    end(lease, mode)
    common = {"sender": backend.alias, "alias": backend.alias, "label": None, "name": "a"}
    (_, acquired), (_, released) = told
    assert [name for name, _ in told] == ["lock_acquired", "lock_released"]
    assert 0 <= acquired.pop("waited") < 5
    assert acquired == {**common, "lease": lease, "attached": False}
    assert 0 <= released.pop("held_for") < 5
    assert released == {**common, "fencing_token": token, "outcome": "released", "reason": ""}


@modes
def test_contention(mode: str, backend: UnitBackend, told: Told) -> None:
    held = in_thread(lock("a", using=backend.alias, ttl=20).acquire)
    told.clear()
    mine = lock("a", using=backend.alias, wait=0.02)
    assert (mine.acquire() if mode == "sync" else asyncio.run(mine.aacquire())) is None
    ((name, given),) = told
    assert name == "lock_contended"
    assert 0.02 <= given.pop("waited") < 5
    assert 15 < given.pop("retry_after") <= 20
    assert given == {"sender": backend.alias, "alias": backend.alias, "label": None, "name": "a"}
    assert held is not None
    held.release()


def test_a_block_that_contends_tells_and_raises(backend: UnitBackend, told: Told) -> None:
    held = in_thread(lock("a", using=backend.alias).acquire)
    with pytest.raises(LockNotAcquiredError), lock("a", using=backend.alias, wait=0):
        pytest.fail("two holders")
    assert [name for name, _ in told] == ["lock_acquired", "lock_contended"]
    assert held is not None
    held.release()


@modes
def test_a_forced_release(mode: str, backend: UnitBackend, told: Told) -> None:
    lease = take(backend, "sync", metadata={"a": 1})
    told.clear()
    if mode == "sync":
        info = backend.force_release("a", fencing_token=lease.fencing_token)
    else:
        info = asyncio.run(backend.aforce_release("a"))
    ((name, given),) = told
    assert name == "lock_force_released"
    assert isinstance(given["holder"], Holder)
    assert given.pop("holder") == info.holder
    assert given == {
        "sender": backend.alias,
        "alias": backend.alias,
        "label": None,
        "name": "a",
        "fencing_token": lease.fencing_token,
    }


def test_a_loss_is_told_on_a_thread_of_its_own(backend: UnitBackend, told: Told) -> None:
    threads: list[str] = []

    def receive(**given: Any) -> None:
        threads.append(threading.current_thread().name)

    lock_released.connect(receive)
    lease = take(backend, "sync", ttl=0.2)
    backend.drop("a")
    assert eventually(lambda: threads)
    lock_released.disconnect(receive)
    drain(backend)
    assert [name.rpartition("-")[0] for name in threads] == ["distlock-callback"]
    given = dict(told)["lock_released"]
    assert 0 <= given.pop("held_for") < 5
    assert given == {
        "sender": backend.alias,
        "alias": backend.alias,
        "label": None,
        "name": "a",
        "fencing_token": lease.fencing_token,
        "outcome": "lost",
        "reason": given["reason"],
    }
    assert "not ours any more" in given["reason"]


@modes
def test_a_loss_that_the_release_finds_is_told(mode: str, backend: UnitBackend, told: Told) -> None:
    lease = take(backend, "sync")
    backend.drop("a")
    with pytest.raises(LeaseLostError):
        end(lease, mode)
    drain(backend)
    assert [given["outcome"] for name, given in told if name == "lock_released"] == ["lost"]


def test_each_loss_is_told_once(backend: UnitBackend, told: Told) -> None:
    lease = take(backend, "sync")
    backend.drop("a")
    for _ in range(3):
        with pytest.raises(LeaseLostError):
            lease.renew()
    with pytest.raises(LeaseLostError):
        lease.release()
    drain(backend)
    assert [given["outcome"] for name, given in told if name == "lock_released"] == ["lost"]


# -- receivers -----------------------------------------------------------------------------------


@modes
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", sorted(set(ALL) - LATER))
def test_a_receiver_that_fails_breaks_nothing(
    name: str, kind: str, mode: str, backend: UnitBackend
) -> None:
    seen: list[str] = []

    def receive(**given: Any) -> None:
        seen.append(name)
        raise ValueError("the receiver's own")

    async def areceive(**given: Any) -> None:
        await asyncio.sleep(0)
        receive(**given)

    receiver = receive if kind == "sync" else areceive
    ALL[name].connect(receiver)
    try:
        lease = take(backend, mode)
        lease.renew()
        assert in_thread(lock("a", using=backend.alias, wait=0).acquire) is None
        end(lease, mode)
        take(backend, mode)
        backend.force_release("a")
    finally:
        ALL[name].disconnect(receiver)
    assert seen
    assert not backend.holds("a")


@modes
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_receivers_of_either_kind_are_told_in_either_mode(
    kind: str, mode: str, backend: UnitBackend
) -> None:
    seen: list[str] = []

    def receive(name: str, **given: Any) -> None:
        seen.append(name)

    async def areceive(name: str, **given: Any) -> None:
        await asyncio.sleep(0)
        seen.append(name)

    receiver = receive if kind == "sync" else areceive
    for signal in (lock_acquired, lock_released):
        signal.connect(receiver)
    try:
        end(take(backend, mode), mode)
        lease = take(backend, mode)
        lease._hold.lose("gone")
        drain(backend)
    finally:
        for signal in (lock_acquired, lock_released):
            signal.disconnect(receiver)
    assert seen == ["a"] * 4


def test_an_asynchronous_receiver_breaks_no_synchronous_call_on_the_loops_thread(
    backend: UnitBackend,
) -> None:
    # Django cannot run it there, and says so by an error that is not the lock's.
    async def receive(**given: Any) -> None:
        pass

    async def main() -> None:
        with lock("a", using=backend.alias) as lease:
            lease.check()

    for signal in (lock_acquired, lock_released):
        signal.connect(receive)
    try:
        asyncio.run(main())
    finally:
        for signal in (lock_acquired, lock_released):
            signal.disconnect(receive)
    assert not backend.holds("a")


def test_a_receiver_that_waits_does_not_hold_a_cancellation_up(backend: UnitBackend) -> None:
    async def receive(**given: Any) -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        task = asyncio.create_task(lock("a", using=backend.alias).aacquire())
        assert await asyncio.to_thread(eventually, lambda: backend.holds("a"))
        await asyncio.sleep(0.02)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=15)
        assert done, "the cancellation waits for the receiver"

    lock_acquired.connect(receive)
    try:
        asyncio.run(main())
    finally:
        lock_acquired.disconnect(receive)
    assert eventually(lambda: not backend.holds("a"))


def test_telling_nobody_is_nothing() -> None:
    tell = Tell(Signal(), "shop", {"name": "a"})
    tell.do()
    asyncio.run(tell.ado())


@modes
@pytest.mark.parametrize("how", ["detached", "abandoned"])
def test_a_lease_that_ends_otherwise_says_how(
    how: str, mode: str, backend: UnitBackend, told: Told
) -> None:
    lease = take(backend, mode)
    token = lease.fencing_token
    handle = lease.detach() if how == "detached" else None
    lease._drop()
    drain(backend)
    (_, (name, given)) = told
    assert 0 <= given.pop("held_for") < 5
    assert (name, given.pop("outcome")) == ("lock_released", how)
    assert given.pop("reason")
    common = {"sender": backend.alias, "alias": backend.alias, "label": None, "name": "a"}
    assert given == {**common, "fencing_token": token}
    if handle is not None:
        again = Lease.attach(handle)
        name, given = told[-1]
        assert name == "lock_acquired"
        assert given == {**common, "lease": again, "waited": 0.0, "attached": True}
        again.release()
