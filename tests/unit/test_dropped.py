"""A lease that is dropped without a release says so: a ResourceWarning and a line in the log."""

from __future__ import annotations

import gc
import math
import os
import warnings

import pytest

from django_distlock import Lease, clock, lock
from django_distlock.watchdog import watchdog
from django_distlock.worker import events

from .tools import UnitBackend, eventually

HERE = os.path.basename(__file__)


def dropped(
    backend: UnitBackend, caught: list[warnings.WarningMessage], *, expected: int = 0
) -> list[str]:
    """Return what was said of dropped leases once the watchdog has looked at them."""
    gc.collect()

    def told() -> list[str]:
        texts = [str(each.message) for each in caught if each.category is ResourceWarning]
        return [text for text in texts if repr(backend.alias) in text]

    watchdog._schedule.due(math.inf)  # as if their ttl had passed
    eventually(lambda: len(told()) >= expected)
    events.drain(clock.now() + 5)
    return told()


def taken(backend: UnitBackend, **options: object) -> Lease:
    lease = lock("nightly", using=backend.alias, **options).acquire()  # type: ignore[arg-type]
    assert lease is not None
    return lease


def test_the_idiom_of_threading(backend: UnitBackend, caplog: pytest.LogCaptureFixture) -> None:
    """`if lock(...).acquire():` drops the lease, which is not renewed while the work goes on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if lock("nightly", using=backend.alias).acquire():
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
            with lock("nightly", using=backend.alias):
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
    """The parent's leases are not the child's to end."""
    lease = taken(backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if not child:  # pragma: no cover - measured in the parent only
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del lease
            os._exit(len(dropped(backend, caught)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.release()
