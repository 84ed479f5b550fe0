"""The stream of measurements: what is in it, by what labels, and that nobody is disturbed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from django_distlock import (
    Lease,
    LeaseLostError,
    LockBackendError,
    lock,
    signals,
)
from django_distlock.metrics import OTHER, Measurement, held_now, listen
from django_distlock.testing import hold_elsewhere

from .tools import Down, UnitBackend, drain, eventually, in_thread

Seen = list[Measurement]


def held(backend: UnitBackend) -> dict[str, int]:
    """Return what is held now in the test's own store, by label."""
    return {label: n for (alias, label), n in held_now().items() if alias == backend.alias}


def short(seen: Seen) -> list[tuple[str, str]]:
    """Return what was measured, and how it ended."""
    return [(each.what, each.outcome) for each in seen]


modes = pytest.mark.parametrize("mode", ["sync", "async"])


@modes
def test_a_hold_from_its_grant_to_its_release(mode: str, backend: UnitBackend, seen: Seen) -> None:
    mine = lock("a", using=backend.alias, label="some")

    async def hold() -> None:
        async with mine as lease:
            await lease.arenew()

    if mode == "sync":
        with mine as lease:
            lease.renew()
    else:
        asyncio.run(hold())
    assert short(seen) == [("acquire", "granted"), ("renew", "renewed"), ("hold", "released")]
    assert {(m.alias, m.label, m.name) for m in seen} == {(backend.alias, "some", "a")}
    begun, renewed, ended = seen
    assert 0 <= (begun.seconds or 0.0) < 5
    assert 0 < (ended.seconds or 0.0) < 5
    assert begun.hold is ended.hold is not None
    assert renewed.hold is None


@modes
def test_it_is_told_where_the_lock_is_taken(mode: str, backend: UnitBackend) -> None:
    """Not on another thread, as Django calls receivers of either kind for the other world."""
    threads: list[int] = []
    stop = listen(lambda measurement: threads.append(threading.get_ident()))
    mine = lock("a", using=backend.alias)

    async def hold() -> None:
        async with mine:
            pass

    try:
        if mode == "sync":
            with mine:
                pass
        else:
            asyncio.run(hold())
    finally:
        stop()
    assert threads == [threading.get_ident()] * 2


@modes
def test_contention(mode: str, backend: UnitBackend, seen: Seen) -> None:
    mine = lock("a", using=backend.alias, wait=0.02)
    with hold_elsewhere("a", using=backend.alias):
        seen.clear()
        assert (mine.acquire() if mode == "sync" else asyncio.run(mine.aacquire())) is None
        (measured,) = seen
    assert (measured.what, measured.outcome) == ("acquire", "contended")
    assert 0.02 <= (measured.seconds or 0.0) < 5


@modes
def test_a_store_that_fails(mode: str, backend: UnitBackend, seen: Seen) -> None:
    mine = lock("a", using=backend.alias)
    backend.before["try_acquire"].append(Down("no route"))
    with pytest.raises(LockBackendError):
        mine.acquire() if mode == "sync" else asyncio.run(mine.aacquire())
    drain(backend)
    (failed,) = seen
    assert (failed.what, failed.outcome) == ("acquire", "failed")
    assert failed.seconds is not None
    assert "no route" in failed.reason
    lease = mine.acquire()
    assert lease is not None
    seen.clear()
    for verb in ("renew", "release"):
        backend.before[verb].append(Down("no route"))
        call: Any = getattr(lease, verb if mode == "sync" else f"a{verb}")
        with pytest.raises(LockBackendError):
            call() if mode == "sync" else asyncio.run(call())
    assert short(seen) == [("renew", "failed"), ("release", "failed")]
    assert [m.hold for m in seen] == [None, None]
    lease.release()
    assert short(seen)[2:] == [("hold", "released")]


def test_renewals_in_the_background(backend: UnitBackend, seen: Seen) -> None:
    with lock("a", using=backend.alias, ttl=2.4):
        assert eventually(lambda: ("renew", "renewed") in short(seen))
        backend.before["renew"].append(Down("no route"))
        assert eventually(lambda: ("renew", "failed") in short(seen))


def test_a_loss(backend: UnitBackend, seen: Seen) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    backend.drop("a")
    with pytest.raises(LeaseLostError):
        lease.release()
    drain(backend)
    assert short(seen) == [("acquire", "granted"), ("hold", "lost")]
    assert "forced" in seen[1].reason
    assert seen[1].hold is seen[0].hold


def test_a_forced_release(backend: UnitBackend, seen: Seen) -> None:
    with hold_elsewhere("a", using=backend.alias):
        seen.clear()
        backend.force_release("a")
        (forced,) = seen
    assert (forced.what, forced.outcome, forced.label) == ("force", "forced", OTHER)


def test_a_hold_that_is_handed_over_ends_here_and_begins_there(
    backend: UnitBackend, seen: Seen
) -> None:
    lease = lock("a", using=backend.alias, label="some").acquire()
    assert lease is not None
    handle = lease.detach()
    drain(backend)
    there = Lease.attach(handle)
    assert held(backend) == {"some": 1}
    there.release()
    assert short(seen) == [
        ("acquire", "granted"),
        ("hold", "detached"),
        ("renew", "renewed"),
        ("attach", "attached"),
        ("hold", "released"),
    ]
    assert {m.label for m in seen} == {"some"}
    assert seen[0].hold is seen[1].hold
    assert seen[3].hold is seen[4].hold
    assert held(backend) == {}


def test_a_lease_that_is_given_up_ends(backend: UnitBackend, seen: Seen) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    lease._drop()
    drain(backend)
    assert short(seen) == [("acquire", "granted"), ("hold", "abandoned")]


def test_an_interrupted_release_ends(backend: UnitBackend, seen: Seen) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    backend.before["release"].append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    drain(backend)
    assert short(seen) == [("acquire", "granted"), ("hold", "abandoned")]
    assert not backend.holds("a")


def test_a_nested_acquisition_is_none(backend: UnitBackend, seen: Seen) -> None:
    mine = lock("a", using=backend.alias, reentrant=True)
    with mine, mine:
        assert held(backend) == {OTHER: 1}
    assert [each for each in short(seen) if each[0] != "renew"] == [
        ("acquire", "granted"),
        ("hold", "released"),
    ]


def test_nobody_is_disturbed_by_a_listener_that_fails(
    backend: UnitBackend, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(measurement: Measurement) -> None:
        raise ValueError("its own")

    stop = listen(fail)
    with lock("a", using=backend.alias):
        pass
    stop()
    stop()  # does no harm
    assert len(seen) == 2
    assert caplog.text.count("What listens to measurements failed") == 2


def test_without_listeners_nothing_is_told(backend: UnitBackend) -> None:
    first, second = listen(print), listen(lambda measurement: None)
    assert len(signals.listeners) == 1
    first()
    assert len(signals.listeners) == 1
    second()
    assert signals.listeners == []
    assert not signals.heard(signals.lock_acquired)


def test_held_now_counts_every_thread(backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, label="some")
    there = in_thread(mine.acquire)
    here = lock("b", using=backend.alias, label="some").acquire()
    assert here is not None
    assert there is not None
    assert held(backend) == {"some": 2}
    here.release()
    there.release()
    assert held(backend) == {}
