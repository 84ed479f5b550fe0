"""A lease that is dropped without a release says so: a ResourceWarning and a line in the log."""

from __future__ import annotations

import gc
import os
import warnings

import pytest

from django_distlock import Lease, lock
from django_distlock.core import clock
from django_distlock.core.registry import take_dropped
from django_distlock.core.watchdog import watchdog
from django_distlock.core.worker import events

from .tools import UnitBackend, eventually

HERE = os.path.basename(__file__)
TTL = 0.6  # seconds; at a third of it the watchdog looks, at its end at the latest


def dropped(
    backend: UnitBackend, caught: list[warnings.WarningMessage], *, expected: int = 0
) -> list[str]:
    """Return what was said of dropped leases once the watchdog has looked at them."""
    gc.collect()

    def told() -> list[str]:
        texts = [str(each.message) for each in caught if each.category is ResourceWarning]
        return [text for text in texts if repr(backend.alias) in text]

    def watched() -> bool:
        with watchdog._mutex:
            buckets = [bucket for _, _, bucket in watchdog._schedule._heap]
            return any(backend.alias in entry for each in buckets for entry in each.values())

    assert eventually(lambda: not watched())
    assert eventually(lambda: len(told()) >= expected)
    events.drain(clock.now() + 5)
    return told()


def taken(backend: UnitBackend, **options: object) -> Lease:
    lease: Lease | None = lock("nightly", using=backend.alias, ttl=TTL, **options).acquire()  # type: ignore[call-overload]
    assert lease is not None
    return lease


def test_the_idiom_of_threading(backend: UnitBackend, caplog: pytest.LogCaptureFixture) -> None:
    """`if lock(...).acquire():` drops the lease, which is not renewed while the work goes on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if lock("nightly", using=backend.alias, ttl=TTL).acquire():
            pass
        (text,) = dropped(backend, caught, expected=1)
    for part in ("'nightly'", repr(backend.alias), HERE, "keep the lease"):
        assert part in text
    assert text in caplog.messages


@pytest.mark.parametrize("how", ["released", "detached", "left", "not renewed", "with"])
def test_what_was_ended_on_purpose_is_not_told(backend: UnitBackend, how: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if how == "with":
            with lock("nightly", using=backend.alias, ttl=TTL):
                pass
        else:
            lease = taken(backend, renew=how != "not renewed")
            if how == "released":
                lease.release()
            elif how == "detached":
                lease.detach()
            elif how == "left":
                with lease:
                    pass
            del lease
        assert dropped(backend, caught) == []


def test_a_forked_child_has_dropped_nothing(backend: UnitBackend) -> None:
    """The parent's leases are not the child's to end, nor to be told of."""
    lease = lock("nightly", using=backend.alias).acquire()
    assert lease is not None
    index = lease._hold.index
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if not child:  # pragma: no cover - measured in the parent only
        del lease
        gc.collect()
        os._exit(take_dropped(index))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.release()
