"""`override_locks`: the settings that are kept, and what was there before."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import override_settings

from django_distlock import (
    AlreadyHeldError,
    InvalidLockBackendError,
    InvalidLockError,
    LeaseLostError,
    lock,
    locks,
)
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.testing import override_locks

from .tools import in_thread, is_in_memory

LOCMEM = "django_distlock.backends.locmem.LocMemBackend"


# -- settings --------------------------------------------------------------------------------------

SHOP: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django_distlock.backends.table.TableBackend",
        "LOCATION": "default",
        "PREFIX": "shop",
        "TTL": 7,
        "WAIT": 3,
        "REENTRANT": True,
        "OPTIONS": {"COMMAND_TIMEOUT": 2},
    }
}


@override_settings(DISTLOCKS=SHOP)
def test_the_settings_of_the_alias_are_kept() -> None:
    with override_locks():
        conf = locks["default"].conf
        assert (conf.prefix, conf.ttl, conf.wait, conf.reentrant) == ("shop", 7, 3, True)
        assert locks["default"].command_timeout == 2
        with lock("a") as first, lock("a") as second:
            assert first.fencing_token == second.fencing_token
            assert first.ttl == 7
    with override_locks(TTL=1, REENTRANT=False):
        conf = locks["default"].conf
        assert (conf.prefix, conf.ttl, conf.reentrant) == ("shop", 1, False)


def test_the_backend_itself_is_not_needed() -> None:
    strange = {"default": {"BACKEND": "no.such.Backend", "OPTIONS": {"HOSTS": ["a"]}}}
    with override_settings(DISTLOCKS=strange), override_locks(), lock("a"):
        pass


def test_wrong_options_are_told() -> None:
    with pytest.raises(TypeError, match="LOCATION"):
        override_locks(LOCATION="x")
    with pytest.raises(InvalidLockError):
        override_locks(wait=-1)
    with pytest.raises(InvalidLockError):
        override_locks(held=[""])
    for wrong in (
        override_locks(using="missing"),
        override_locks(held={"missing": ["a"]}),
        override_locks(using="locmem", held={"default": ["a"]}),
        override_locks(TTL=-1),
        override_locks(COLOUR="red"),
    ):
        with pytest.raises(InvalidLockBackendError, match=r"missing|default|TTL|COLOUR"), wrong:
            raise NotImplementedError
    with (
        override_settings(DISTLOCKS={"default": "wrong"}),
        pytest.raises(InvalidLockBackendError, match="is a dict"),
        override_locks(),
    ):
        raise NotImplementedError


@override_settings(DISTLOCKS=SHOP)
def test_a_change_of_the_settings_stays_in_memory() -> None:
    with override_locks(held={"a"}):
        changed = {**SHOP, "second": {"BACKEND": LOCMEM}}
        changed["default"] = {**SHOP["default"], "TTL": 9}
        with override_settings(DISTLOCKS=changed):
            assert is_in_memory()
            assert is_in_memory("second")
            assert lock("a").locked()
            assert locks["default"].conf.ttl == 9
        assert is_in_memory()
        assert locks["default"].conf.ttl == 7
        locks.close_all()
        assert is_in_memory()
        assert lock("a").locked()


# -- what was there --------------------------------------------------------------------------------


def test_leases_of_before_live_on() -> None:
    with lock("a", using="locmem", ttl=2.4) as before:
        with override_locks():
            with lock("a", using="locmem", wait=0) as inside:
                assert inside.fencing_token != before.fencing_token
            time.sleep(2.7)
            before.check()  # renewed meanwhile
        before.check()
        with pytest.raises(AlreadyHeldError):
            lock("a", using="locmem").acquire()
        assert in_thread(lock("a", using="locmem", wait=0).acquire) is None
    assert not lock("a", using="locmem").locked()


def test_leases_of_before_may_end_inside() -> None:
    before = lock("a").acquire()
    assert before
    with override_locks():
        before.release()
    assert not lock("a").locked()


def test_leases_of_before_are_lost_when_the_settings_change() -> None:
    before = lock("of before").acquire()
    assert before
    with override_locks(), override_settings(DISTLOCKS=SHOP):
        assert before.lost
    locks["default"].force_release("of before")


def test_a_lease_that_outlives_the_block_is_lost() -> None:
    with override_locks():
        lease = lock("a").acquire()
        assert lease
    with pytest.raises(LeaseLostError, match="closed"):
        lease.check()


def test_blocks_nest_and_the_inner_one_stands_alone() -> None:
    with override_locks(held={"a"}, wait=0):
        outer = lock("b").acquire()
        assert outer
        with override_locks(held={"c"}):
            assert not lock("a").locked()
            assert not lock("b").locked()
            assert lock("c").locked()
            assert locks["default"].longest_wait is None
        outer.check()
        assert lock("a").locked()
        assert not lock("c").locked()


def test_one_object_used_again_and_inside_itself() -> None:
    twice = override_locks(held={"a"})
    with twice, lock("b"):
        with twice, lock("b", wait=0):
            pass
        assert twice.taken() == ["b"]
    with twice:
        assert not lock("b").locked()


def test_blocks_that_end_in_another_order() -> None:
    before = locks["default"]
    outer, inner = override_locks(held={"outer"}), override_locks(held={"inner"})
    outer.enable()
    inner.enable()
    outer.disable()
    assert lock("inner").locked()
    inner.disable()
    assert locks["default"] is before


def test_a_backend_put_in_by_hand_is_left() -> None:
    conf = locks["locmem"].conf
    with override_locks(using="locmem"):
        by_hand = LocMemBackend("locmem", conf)
        locks["locmem"] = by_hand
    assert locks["locmem"] is by_hand
    del locks["locmem"]


@override_settings(DISTLOCKS={"default": {"BACKEND": LOCMEM}, "second": {"BACKEND": LOCMEM}})
def test_an_alias_that_is_not_replaced_is_opened_as_it_is_set() -> None:
    with override_locks(using="second"):
        assert not is_in_memory("default")
        with override_settings(DISTLOCKS={"default": {"BACKEND": LOCMEM, "TTL": 3}}):
            assert locks["default"].conf.ttl == 3
            assert not is_in_memory("default")
        assert is_in_memory("second")
