"""System checks: each id is shown when it has to be, and silent when all is right."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage, Error, Warning, run_checks
from django.db import connections
from django.test import override_settings

from django_distlock.checks import (
    check_aliases,
    check_deploy,
    check_spelling,
    check_threads,
    check_transactions,
    check_twins,
)

from .tools import UnitBackend

LOCMEM = "django_distlock.backends.locmem.LocMemBackend"
DUMMY = "django_distlock.backends.dummy.DummyBackend"
UNIT = "tests.unit.tools.UnitBackend"


class CrossBackend(UnitBackend):
    """A backend that says it excludes other processes, too."""

    scope = "cluster"  # type: ignore[assignment]


class ComplainingBackend(UnitBackend):
    """A backend with something to say."""

    def check(self) -> list[CheckMessage]:
        return [Warning("It rains.", id="distlock.W999")]


CROSS = f"{__name__}.CrossBackend"
Check = Callable[[], list[CheckMessage]]


def ids(check: Check, distlocks: Any) -> list[str | None]:
    """Return the ids that a check shows for a setting."""
    with override_settings(DISTLOCKS=distlocks):
        found = check()
    for message in found:
        assert message.hint
    return [message.id for message in found]


def test_all_is_silent_when_all_is_right() -> None:
    right = {"default": {"BACKEND": CROSS}, "other": {"BACKEND": CROSS}}
    for check in (check_aliases, check_transactions, check_deploy):
        assert ids(check, right) == []


def test_the_checks_are_registered_under_their_tag() -> None:
    wrong = {"default": {"BACKEND": "nowhere.Backend"}}
    with override_settings(DISTLOCKS=wrong):
        assert "distlock.E001" in [message.id for message in run_checks(tags=["distlock"])]
    with override_settings(DISTLOCKS={"default": {"BACKEND": DUMMY}}):
        plain = [message.id for message in run_checks(tags=["distlock"])]
        deploy = [
            message.id for message in run_checks(tags=["distlock"], include_deployment_checks=True)
        ]
    assert "distlock.W010" not in plain
    assert "distlock.W010" in deploy


@pytest.mark.parametrize(
    "distlocks",
    [
        [],
        {"default": {"BACKEND": "nowhere.Backend"}},
        {"default": {"BACKEND": LOCMEM, "TTL": 0}},
        {"default": {"BACKEND": LOCMEM, "TIMEOUT": 0}},
        {"default": {"BACKEND": LOCMEM, "OPTIONS": {"SPEED": 1}}},
        {"default": {"BACKEND": "django_distlock.backends.table.TableBackend", "LOCATION": "no"}},
        {
            "default": {
                "BACKEND": "django_distlock.backends.table.TableBackend",
                "OPTIONS": {"SQL": "oracle"},
            }
        },
        {"default": {}},
        {"default": None},
    ],
    ids=str,
)
def test_e001_wrong_settings(distlocks: Any) -> None:
    assert ids(check_aliases, distlocks) == ["distlock.E001"]
    with override_settings(DISTLOCKS=distlocks):
        (message,) = check_aliases()
        assert isinstance(message, Error)
        assert "DISTLOCKS" in message.msg
        assert check_transactions() == []
        assert check_deploy() == []


def test_e001_each_wrong_alias_is_shown() -> None:
    wrong: Any = {"default": {"BACKEND": LOCMEM}, "a": {"BACKEND": 5}, "b": {"TTL": 1}}
    with override_settings(DISTLOCKS=wrong):
        found = check_aliases()
    assert [message.id for message in found] == ["distlock.E001"] * 2
    assert ["'a'" in found[0].msg, "'b'" in found[1].msg] == [True, True]


def test_w001_no_default() -> None:
    assert ids(check_aliases, {"shop": {"BACKEND": LOCMEM}}) == ["distlock.W001"]
    assert ids(check_aliases, {}) == ["distlock.W001"]


def test_a_backend_is_asked_what_it_has_to_say() -> None:
    complaining = {"default": {"BACKEND": f"{__name__}.ComplainingBackend"}}
    with override_settings(DISTLOCKS=complaining):
        assert [message.id for message in check_aliases()] == ["distlock.W999"]


@pytest.fixture
def _atomic_requests() -> Any:
    conf = connections.settings["default"]
    before = conf["ATOMIC_REQUESTS"]
    conf["ATOMIC_REQUESTS"] = True
    yield
    conf["ATOMIC_REQUESTS"] = before


@pytest.mark.usefixtures("_atomic_requests")
@pytest.mark.parametrize("mode", ["allow", "hold", "error"])
def test_w002_views_in_transactions_with_locks_freed_inside(mode: str) -> None:
    found = ids(check_transactions, {"default": {"BACKEND": LOCMEM, "IN_TRANSACTION": mode}})
    assert found == (["distlock.W002"] if mode == "allow" else [])


def test_w002_not_without_atomic_requests() -> None:
    allowed = {"default": {"BACKEND": LOCMEM, "IN_TRANSACTION": "allow"}}
    assert ids(check_transactions, allowed) == []


@pytest.mark.usefixtures("_atomic_requests")
def test_w002_names_the_alias_and_the_database() -> None:
    shop = {"shop": {"BACKEND": LOCMEM, "IN_TRANSACTION": "allow"}, "wrong": {"BACKEND": 5}}
    with override_settings(DISTLOCKS=shop):
        (message,) = check_transactions()
    assert "'shop'" in message.msg
    assert "'default'" in message.msg
    assert "IN_TRANSACTION" in (message.hint or "")


@pytest.mark.parametrize("path", [LOCMEM, DUMMY])
def test_w010_a_store_of_one_process_in_production(path: str) -> None:
    with override_settings(DISTLOCKS={"shop": {"BACKEND": path}, "fine": {"BACKEND": CROSS}}):
        (message,) = check_deploy()
    assert message.id == "distlock.W010"
    assert isinstance(message, Warning)
    assert "'shop'" in message.msg
    assert path.rsplit(".", 1)[1] in message.msg


TABLE = {"default": {"BACKEND": "django_distlock.backends.table.TableBackend"}}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["distlock.W004"]),
        ({"transaction_mode": None}, ["distlock.W004"]),
        ({"transaction_mode": "DEFERRED"}, ["distlock.W004"]),
        ({"transaction_mode": "IMMEDIATE"}, []),
        ({"transaction_mode": "exclusive"}, []),
    ],
    ids=str,
)
def test_w004_sqlite_whose_transactions_begin_as_readers(
    options: dict[str, Any], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"], "OPTIONS", options)
    assert ids(check_deploy, TABLE) == found
    assert ids(check_aliases, TABLE) == []


@pytest.mark.parametrize(
    ("alias", "setting"),
    [
        each
        for each in (("postgresql", "fsync"), ("mariadb", "innodb_flush_log_at_trx_commit"))
        if each[0] in connections.settings
    ],
)
def test_w016_a_server_that_does_not_wait_for_the_disk(alias: str, setting: str) -> None:
    """As those of the tests."""
    with override_settings(DISTLOCKS={"default": TABLE["default"] | {"LOCATION": alias}}):
        (message,) = check_deploy()
    assert message.id == "distlock.W016"
    assert setting in message.msg


@pytest.mark.parametrize(
    ("opt", "found"),
    [
        ({}, ["distlock.W011"]),
        ({b"http": b":8000", b"enable-threads": b"false"}, ["distlock.W011"]),
        ({b"enable-threads": b"true"}, []),
        ({b"enable-threads": True}, []),
        ({"threads": "2"}, []),
        (None, ["distlock.W011"]),
    ],
    ids=str,
)
def test_w011_uwsgi_without_threads(
    opt: dict[Any, Any] | None, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uwsgi = ModuleType("uwsgi")
    if opt is not None:
        uwsgi.opt = opt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    assert ids(check_threads, {"default": {"BACKEND": CROSS}}) == found


def test_w011_not_outside_of_uwsgi() -> None:
    assert check_threads() == []
    assert "uwsgi" not in sys.modules


@pytest.mark.parametrize("name", ["DISTLOCK", "DJANGO_DISTLOCKS", "DIST_LOCKS", "DISTLOKCS"])
def test_w007_a_setting_of_another_name(name: str) -> None:
    with override_settings(**{name: {"default": {"BACKEND": CROSS}}}):
        assert [message.id for message in check_spelling()] == ["distlock.W007"]


@pytest.mark.parametrize(
    "other", [{"LOCK_TIMEOUT": 5}, {"DISTLOCK": "a text"}, {"REDIS_LOCKS": {}}]
)
def test_w007_is_silent_about_others(other: dict[str, Any]) -> None:
    with override_settings(**other):
        assert check_spelling() == []


def test_w008_aliases_that_are_the_same_locks() -> None:
    place = {"BACKEND": LOCMEM, "LOCATION": "here"}
    same = {"one": place, "two": {**place, "TTL": 5}, "three": {**place, "PREFIX": "p"}}
    assert ids(check_twins, {**same, "default": {"BACKEND": LOCMEM}}) == ["distlock.W008"]
    with override_settings(DISTLOCKS=same):
        [message] = check_twins()
    assert "'one', 'two' are the same locks" in message.msg
    assert ids(check_twins, {"one": {"BACKEND": DUMMY}, "two": {"BACKEND": DUMMY}}) == []
