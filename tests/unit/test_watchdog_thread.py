"""The watchdog as it runs: its own thread, one worker an alias, and what nobody waits for."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from django_distlock import Lease, LeaseLostError, lock
from django_distlock.conf import AliasConf
from django_distlock.core import blocks, threads, watchdog
from django_distlock.core.hold import Hold, State
from django_distlock.core.watchdog import Watchdog, abandon, worker_of
from django_distlock.handler import locks

from .tools import (
    LIMIT,
    Down,
    Gate,
    UnitBackend,
    claim_of,
    drain,
    eventually,
    make_hold,
    opened,
    without_gc,
)


@pytest.fixture
def _short_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "IDLE", 0.05)
    monkeypatch.setattr(watchdog, "LOOK", 0.05)


@pytest.fixture
def two() -> Iterator[tuple[UnitBackend, UnitBackend]]:
    with opened() as one, opened() as other:
        yield one, other


# -- its thread ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_short_idle")
def test_the_thread_begins_with_the_first_hold_and_ends_when_there_is_none(
    backend: UnitBackend,
) -> None:
    dog = Watchdog()
    hold = make_hold(backend, "a", ttl=0.1, renewing=False)
    dog.watch(hold)
    thread = dog._thread
    assert thread is not None
    assert thread.daemon
    assert eventually(lambda: hold.state is State.LOST)
    assert eventually(lambda: dog._thread is None)
    assert eventually(lambda: not thread.is_alive())
    again = make_hold(backend, "b", ttl=0.1, renewing=False)
    dog.watch(again)
    assert eventually(lambda: again.state is State.LOST), "no new thread was begun"


@pytest.mark.usefixtures("_short_idle")
def test_the_thread_ends_when_what_is_due_in_an_hour_was_released(backend: UnitBackend) -> None:
    dog = Watchdog()
    holds = [make_hold(backend, name, ttl=3600.0) for name in ("a", "b", "c")]
    for hold in holds:
        dog.watch(hold)
    thread = dog._thread
    assert thread is not None
    for hold in holds[:2]:
        hold.move(State.ACTIVE, State.RELEASED)
    time.sleep(0.2)
    assert dog._thread is thread, "one is still watched"
    holds.pop()  # dropped, not released
    assert eventually(lambda: dog._thread is None)
    assert eventually(lambda: not thread.is_alive())
    again = make_hold(backend, "d", ttl=0.1, renewing=False)
    dog.watch(again)
    assert eventually(lambda: again.state is State.LOST), "no new thread was begun"


def test_what_is_due_sooner_wakes_it(backend: UnitBackend) -> None:
    dog = Watchdog()
    late = make_hold(backend, "late", ttl=600.0, renewing=False)
    soon = make_hold(backend, "soon", ttl=0.1, renewing=False)
    dog.watch(late)
    dog.watch(soon)
    assert eventually(lambda: soon.state is State.LOST)
    assert late.state is State.ACTIVE


def test_its_thread_survives_what_goes_wrong(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(hold: Hold) -> None:
        raise RuntimeError("the event loop was closed in this very moment")

    dog = Watchdog()
    first = make_hold(backend, "first", ttl=0.05, renewing=False)
    first.on_lost.append(broken)
    second = make_hold(backend, "second", ttl=0.2, renewing=False)
    dog.watch(first)
    dog.watch(second)
    assert eventually(lambda: second.state is State.LOST), "the watchdog is dead"
    assert "in this very moment" in caplog.text


def test_a_lease_outlives_many_ttls(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias, ttl=2.4) as lease:
        assert eventually(lambda: backend.count("renew") >= 7), "that is more than two ttls"
        lease.check()
        assert backend.holds("a")


def test_a_lease_is_renewed_while_others_try_for_it_and_take_turns(backend: UnitBackend) -> None:
    """However often the same name is refused, taken and freed beside it in this process."""
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            assert lock("a", using=backend.alias, wait=0).acquire() is None
            with lock("b", using=backend.alias, ttl=0.2, wait=10):
                pass
            time.sleep(0)

    threads = [threading.Thread(target=disturb) for _ in range(2)]
    with lock("a", using=backend.alias, ttl=2.4) as lease:
        for thread in threads:
            thread.start()
        try:
            assert eventually(lambda: backend.calls.count(("renew", "a")) >= 4)
            lease.check()
        finally:
            done.set()
            for thread in threads:
                thread.join()
    assert not backend.holds("a")


def test_a_lease_without_renewal_ends_with_its_ttl(backend: UnitBackend) -> None:
    lease = lock("a", using=backend.alias, ttl=0.1, renew=False).acquire()
    assert lease is not None
    assert eventually(lambda: lease._hold.state is State.LOST)
    assert backend.count("renew") == 0
    with pytest.raises(LeaseLostError):
        lease.release()


def test_a_renewal_that_fails_leaves_a_shorter_lease_that_is_renewed_in_time(
    backend: UnitBackend,
) -> None:
    # The shorter ttl may have reached the store, so only that can be counted on.
    lease = lock("a", using=backend.alias, ttl=600).acquire()
    assert lease is not None
    backend.after["renew"].append(Down("the answer was lost"))
    with pytest.raises(Exception, match="answer was lost"):
        lease.renew(2.4)
    assert lease.remaining() <= 2.4
    assert eventually(lambda: backend.count("renew") > 3), "not renewed in time"
    assert not lease.lost
    assert lease.remaining() <= 2.4  # as long as the shorter one may come after the others
    lease.release()


# -- one store hangs -------------------------------------------------------------------------------


def test_a_hung_store_delays_neither_others_renewals_nor_its_own_losses(
    two: tuple[UnitBackend, UnitBackend],
) -> None:
    hung, sound = two
    gate = hung.gates["renew"] = Gate()
    told = threading.Event()
    lost = lock("a", using=hung.alias, ttl=0.3).acquire()
    kept = lock("a", using=sound.alias, ttl=2.4).acquire()
    assert lost is not None
    assert kept is not None
    lost.on_lost(lambda lease: told.set())
    assert gate.entered.wait(LIMIT)
    assert told.wait(LIMIT), "the loss is told only when the store answers"
    assert not gate.open.is_set()
    assert eventually(lambda: sound.count("renew") >= 4)
    kept.check()
    gate.open.set()
    drain(hung)
    assert lost.lost
    kept.release()


def test_a_dropped_lease_is_not_kept_alive(backend: UnitBackend) -> None:
    with without_gc():
        lease = lock("a", using=backend.alias, ttl=2.4).acquire()
        assert lease is not None
        seen = weakref.ref(lease._hold)
        assert eventually(lambda: backend.count("renew") >= 1)
        drain(backend)
        del lease
        assert eventually(lambda: seen() is None)
        renewals = backend.count("renew")
        assert eventually(lambda: not backend.holds("a"))
    assert backend.count("renew") <= renewals + 1


def test_a_dropped_lease_that_asked_to_be_told_is_not_kept_alive(backend: UnitBackend) -> None:
    with without_gc():
        lease = lock("a", using=backend.alias, ttl=600).acquire()
        assert lease is not None
        lease.on_lost(lambda lease: None)
        seen = weakref.ref(lease._hold)
        del lease
        assert seen() is None, "a cycle: it would be renewed until the garbage collector comes"


def test_an_idle_worker_keeps_nothing_alive(backend: UnitBackend) -> None:
    class Local:
        """What a job refers to."""

    with without_gc():
        local = Local()
        seen = weakref.ref(local)
        done = threading.Event()
        worker = worker_of(backend)
        worker.submit(partial(lambda _: done.set(), local))
        assert done.wait(LIMIT)
        del local
        assert eventually(lambda: seen() is None), "kept until the next job"
        assert worker._thread is not None, "the thread has ended, so nothing was shown"


def test_where_no_thread_can_be_started_it_is_tried_again(
    backend: UnitBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the process, or its container, has all the threads that it may have."""
    refused = 0

    def start(thread: threading.Thread) -> None:
        nonlocal refused
        if thread.name == f"distlock-{backend.alias}" and refused < 3:
            refused += 1
            raise RuntimeError("can't start new thread")
        thread.start()

    monkeypatch.setattr(threads, "start", start)
    with lock("a", using=backend.alias, ttl=6) as lease, lock("b", using=backend.alias, ttl=6):
        gone = lock("dropped", using=backend.alias, ttl=6).acquire()
        assert gone is not None
        del gone
        assert eventually(lambda: backend.count("renew") >= 1, 20)
        drain(backend)
        lease.check()
    assert refused == 3
    assert caplog.text.count("can't start new thread") == 3


# -- workers and claims that were given up ---------------------------------------------------------


def test_each_alias_has_one_worker(two: tuple[UnitBackend, UnitBackend]) -> None:
    one, other = two
    assert worker_of(one) is worker_of(one)
    assert worker_of(one) is not worker_of(other)


def test_a_worker_does_not_keep_its_backend(backend: UnitBackend) -> None:
    with without_gc():
        other = UnitBackend("no alias", AliasConf(backend="x"))
        seen = weakref.ref(other)
        done = threading.Event()
        worker = worker_of(other)
        worker.submit(done.set)
        assert done.wait(LIMIT)
        del other
        assert eventually(lambda: seen() is None)
    worker.close()
    gc.collect()


def test_a_worker_closes_what_its_jobs_opened() -> None:
    closed: list[str] = []

    class Closing(UnitBackend):
        def close_thread(self) -> None:
            closed.append(threading.current_thread().name)

    with opened(Closing) as backend:
        worker_of(backend).submit(lambda: None)
        assert eventually(lambda: closed)
        assert closed == [f"distlock-{backend.alias}"]


@pytest.mark.parametrize("which", ["workers", "schedule", "blocks", "locmem"])
def test_what_a_finalizer_needs_may_be_taken_twice(backend: UnitBackend, which: str) -> None:
    # The garbage collector runs wherever memory is asked for, so also inside these: it may end a
    # transaction, or close a generator that stands in a `with` block, whose lease is released.
    mutex: Any = {
        "workers": watchdog._workers_mutex,
        "schedule": watchdog.watchdog._changed,
        "blocks": blocks._mutex,
        "locmem": backend._space.mutex,
    }[which]
    with mutex:
        again = mutex.acquire(blocking=False)
    assert again, "the thread would wait for itself"
    mutex.release()


def test_an_abandoned_claim_is_released(backend: UnitBackend) -> None:
    claim = claim_of(backend, "a")
    backend.try_acquire(claim, 1.0)
    abandon(backend, claim, backend.place())
    assert eventually(lambda: not backend.holds("a"))


@pytest.mark.parametrize("error", [Down("x"), ValueError("not declared")])
def test_an_abandoned_claim_is_released_as_soon_as_the_store_is_back(
    backend: UnitBackend, error: Exception
) -> None:
    claim = claim_of(backend, "a")
    backend.try_acquire(claim, 1.0)
    backend.before["release"] += [error] * 3
    abandon(backend, claim, backend.place())
    assert eventually(lambda: not backend.holds("a"))
    assert backend.count("release") == 4


def test_an_abandoned_claim_is_given_up_when_its_ttl_has_passed(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    claim = claim_of(backend, "a", ttl=0.2)
    backend.before["release"] += [Down("x")] * 1000
    abandon(backend, claim, backend.place())
    with caplog.at_level(logging.WARNING):
        assert eventually(lambda: "is left to its ttl" in caplog.text)
    asked = backend.count("release")
    assert 2 <= asked <= 10
    drain(backend)
    time.sleep(0.3)
    assert backend.count("release") == asked


def test_closing_an_alias_loses_its_leases_and_ends_its_worker() -> None:
    told: list[Lease] = []
    with opened() as backend:
        lease = lock("a", using=backend.alias, ttl=2.4).acquire()
        assert lease is not None
        lease.on_lost(told.append)
        assert eventually(lambda: backend.count("renew") >= 1)
        worker = worker_of(backend)
        del locks[backend.alias]
    assert lease.lost
    drain()
    assert [lost.name for lost in told] == ["a"]
    assert eventually(lambda: worker._thread is None)
    renewals = backend.count("renew")
    time.sleep(1.0)
    assert backend.count("renew") == renewals
