"""`locks`: aliases to backends, wrong settings, and what a change of the settings does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils.connection import BaseConnectionHandler

from django_distlock import InvalidLockBackendError, LeaseLostError, lock, locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.dummy import DummyBackend
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.core import fork
from django_distlock.core.watchdog import worker_of
from django_distlock.handler import LockHandler

from .tools import LIMIT, Gate, UnitBackend, drain, eventually

LOCMEM = "django_distlock.backends.locmem.LocMemBackend"
DUMMY = "django_distlock.backends.dummy.DummyBackend"
UNIT = "tests.unit.tools.UnitBackend"


@pytest.fixture
def handler() -> Iterator[LockHandler]:
    """A handler of the test's own."""
    handler = LockHandler({"default": {"BACKEND": LOCMEM}, "other": {"BACKEND": DUMMY}})
    yield handler
    handler.close_all()


def test_it_is_a_handler_as_django_has_them(handler: LockHandler) -> None:
    assert isinstance(handler, BaseConnectionHandler)
    assert list(handler) == ["default", "other"]
    assert type(handler["default"]) is LocMemBackend
    assert type(handler["other"]) is DummyBackend
    assert handler["default"].alias == "default"
    assert repr(handler["default"]) == "<LocMemBackend 'default'>"


def test_one_backend_an_alias_for_all_threads(handler: LockHandler) -> None:
    begin = threading.Barrier(8, timeout=LIMIT)

    def look(_: int) -> BaseLockBackend:
        begin.wait()
        return handler["default"]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(look, range(8)))) == 1


def test_all_of_them(handler: LockHandler) -> None:
    assert handler.all(initialized_only=True) == []
    default = handler["default"]
    assert handler.all(initialized_only=True) == [default]
    assert handler.all() == [default, handler["other"]]


def test_a_backend_may_be_put_in_and_taken_out(handler: LockHandler) -> None:
    backend = handler["default"]
    handler["spare"] = backend
    assert handler["spare"] is backend
    del handler["spare"]
    with pytest.raises(InvalidLockBackendError, match="no alias 'spare'"):
        handler["spare"]


def test_closed_backends_are_opened_anew(handler: LockHandler) -> None:
    before = handler["default"]
    handler.close_all()
    assert handler.all(initialized_only=True) == []
    assert handler["default"] is not before


def test_a_forked_child_leaves_the_parents_backends_open(handler: LockHandler) -> None:
    parents = handler["default"]
    with handler._mutex:  # as if another thread had been inside at the moment of the fork
        handler.forget_parent()
        assert handler.all(initialized_only=True) == []
        assert handler["default"] is not parents
    assert parents in fork._parked, "collecting it would close the parent's connections"
    fork._parked.remove(parents)


# -- wrong settings --------------------------------------------------------------------------------


def test_an_unknown_alias_names_the_known_ones(handler: LockHandler) -> None:
    with pytest.raises(InvalidLockBackendError, match=r"'cache'\. Configured: 'default', 'other'"):
        handler["cache"]
    with pytest.raises(InvalidLockBackendError, match="Configured: none"):
        LockHandler({})["default"]
    with pytest.raises(ImproperlyConfigured):
        lock("a", using="no such alias").acquire()


@pytest.mark.parametrize("settings", [[], "default", 5])
def test_settings_that_are_no_dict_are_refused(settings: Any) -> None:
    with pytest.raises(InvalidLockBackendError, match="DISTLOCKS is a dict, not"):
        LockHandler(settings)["default"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "cannot import ''"),
        ("nodots", "cannot import 'nodots'"),
        ("no.such.module.Backend", "cannot import 'no.such.module.Backend'"),
        ("django_distlock.backends.locmem.Missing", "Missing"),
        ("django_distlock.core.values.Claim", "no subclass of BaseLockBackend"),
        ("django_distlock.core.names.key_of", "no subclass of BaseLockBackend"),
        ("django_distlock.backends.base.BaseLockBackend", "BaseLockBackend"),
    ],
)
def test_a_backend_that_is_none_is_refused(path: str, said: str) -> None:
    with pytest.raises(InvalidLockBackendError) as caught:
        LockHandler({"shop": {"BACKEND": path}})["shop"]
    assert "DISTLOCKS['shop']['BACKEND']" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "conf",
    [
        {"TTL": 0}, {"WAIT": -1}, {"SPEED": 1}, {"OPTIONS": {"SPEED": 1}},
        {"OPTIONS": {"COMMAND_TIMEOUT": 0}}, {"OPTIONS": 5}, {"IN_TRANSACTION": "maybe"},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_values_are_refused_at_each_use(conf: dict[str, Any]) -> None:
    handler = LockHandler({"shop": {"BACKEND": LOCMEM, **conf}})
    for _ in range(2):
        with pytest.raises(InvalidLockBackendError, match=r"DISTLOCKS\['shop'\]"):
            handler["shop"]
    assert handler.all(initialized_only=True) == []


def test_the_alias_gives_locks_their_options() -> None:
    conf = {"BACKEND": UNIT, "TTL": 7, "RENEW": False, "MAX_HOLD": 60, "REENTRANT": True}
    with override_settings(DISTLOCKS={"default": conf}), lock("a") as lease, lock("a"):
        assert lease.ttl == 7
        assert not lease._hold.renewing
        assert lease._hold.max_hold == 60


def test_the_prefix_keeps_names_apart_in_one_store() -> None:
    def alias(prefix: str) -> dict[str, Any]:
        return {"BACKEND": LOCMEM, "LOCATION": "shared by two", "PREFIX": prefix}

    shops = {"one": alias("shop"), "other": alias("bank"), "twin": alias("shop")}
    with override_settings(DISTLOCKS=shops), lock("a", using="one"):
        with lock("a", using="other", wait=0):
            assert [info.name for info in locks["one"].held()] == ["a"]
            assert [info.name for info in locks["other"].held()] == ["a"]
        assert lock("a", using="twin", wait=0).acquire() is None
        assert locks["twin"].inspect("a") is not None


# -- changes ---------------------------------------------------------------------------------------


def test_a_change_of_the_setting_opens_anew_and_loses_leases() -> None:
    before = locks["default"]
    lease = lock("kept over a change").acquire()
    assert lease is not None
    with override_settings(DISTLOCKS={"default": {"BACKEND": UNIT, "TTL": 7}}):
        assert isinstance(locks["default"], UnitBackend)
        assert list(locks) == ["default"]
        assert lease.lost
        with pytest.raises(LeaseLostError, match="DISTLOCKS"):
            lease.check()
        with pytest.raises(LeaseLostError):
            lease.release()
        with lock("a") as inner:
            assert inner.ttl == 7
    assert locks["default"] is not before
    assert type(locks["default"]) is LocMemBackend
    assert "locmem" in list(locks)


def test_a_change_of_another_setting_leaves_the_leases_alone() -> None:
    with lock("kept") as lease, override_settings(TIME_ZONE="UTC"):
        lease.check()


def test_without_the_setting_the_default_is_the_table() -> None:
    with override_settings():
        del settings.DISTLOCKS
        locks.reset()
        assert list(locks) == ["default"]
        assert type(locks["default"]).__name__ == "TableBackend"
    locks.reset()  # of a setting that was deleted Django tells nobody that it is back


def test_a_worker_ends_with_its_alias() -> None:
    with override_settings(DISTLOCKS={"default": {"BACKEND": UNIT}}):
        backend = locks["default"]
        assert isinstance(backend, UnitBackend)
        drain(backend)
        worker = worker_of(backend)
    assert eventually(lambda: worker._thread is None)


def test_closing_waits_for_a_hung_store_no_longer_than_it_must() -> None:
    with override_settings(DISTLOCKS={"default": {"BACKEND": UNIT}}):
        backend = locks["default"]
        assert isinstance(backend, UnitBackend)
        gate = backend.gates["renew"] = Gate()
        lease = lock("a", ttl=0.3).acquire()
        assert lease is not None
        assert gate.entered.wait(LIMIT)
    assert lease.lost
    gate.open.set()
