"""The settings of an alias: each key judged, with the alias, the key and the values named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.options import positive
from django_distlock.conf import DEFAULTS, IN_TRANSACTION, AliasConf, parse, parse_options
from django_distlock.exceptions import InvalidLockBackendError

PATH = "django_distlock.backends.locmem.LocMemBackend"


def test_the_backend_is_enough() -> None:
    conf = parse("shop", {"BACKEND": PATH})
    assert conf == AliasConf(
        backend=PATH,
        location=None,
        prefix="",
        ttl=30.0,
        wait=10.0,
        renew=True,
        max_hold=None,
        reentrant=False,
        in_transaction="hold",
        retention=604800.0,
        options={},
    )


def test_without_the_setting_it_is_the_table_on_the_default_database() -> None:
    assert set(DEFAULTS) == {"default"}
    conf = parse("default", DEFAULTS["default"])
    assert conf.backend == "django_distlock.backends.table.TableBackend"


RIGHT: list[tuple[str, Any, Any]] = [
    ("LOCATION", "default", "default"),
    ("LOCATION", ["redis://a", "redis://b"], ["redis://a", "redis://b"]),
    ("PREFIX", "shop\0\u00e9", "shop\0\u00e9"),
    ("TTL", 5, 5.0),
    ("TTL", timedelta(minutes=1), 60.0),
    ("WAIT", 0, 0.0),
    ("WAIT", None, None),
    ("WAIT", timedelta(seconds=2), 2.0),
    ("RENEW", False, False),
    ("MAX_HOLD", None, None),
    ("MAX_HOLD", 3600, 3600.0),
    ("MAX_HOLD", timedelta(hours=1), 3600.0),
    ("REENTRANT", True, True),
    *(("IN_TRANSACTION", value, value) for value in IN_TRANSACTION),
    ("RETENTION", 60, 60.0),
    ("RETENTION", timedelta(days=1), 86400.0),
    ("SHOW_CALLER", False, False),
    ("OPTIONS", {"COMMAND_TIMEOUT": 1}, {"COMMAND_TIMEOUT": 1}),
]


@pytest.mark.parametrize(("key", "value", "made"), RIGHT)
def test_what_is_right_is_taken(key: str, value: Any, made: Any) -> None:
    got = getattr(parse("shop", {"BACKEND": PATH, key: value}), key.lower())
    assert got == made
    assert type(got) is type(made)


WRONG: list[tuple[str, Any, str]] = [
    ("BACKEND", None, "is a str"),
    ("BACKEND", BaseLockBackend, "is a str"),
    ("PREFIX", None, "is a str"),
    ("PREFIX", b"shop", "is a str"),
    ("TTL", 0, "between 0.01"),
    ("TTL", -1, "between 0.01"),
    ("TTL", None, "number of seconds"),
    ("TTL", True, "number of seconds"),
    ("TTL", "30", "number of seconds"),
    ("TTL", math.nan, "finite"),
    ("TTL", 1e12, "between 0.01"),
    ("TTL", 10**400, "must not be so large"),
    ("WAIT", -1, "0 (try once)"),
    ("WAIT", "10", "number of seconds"),
    ("WAIT", False, "number of seconds"),
    ("WAIT", math.inf, "finite"),
    ("RENEW", 1, "True or False"),
    ("RENEW", "yes", "True or False"),
    ("MAX_HOLD", 0, "between 0.01"),
    ("MAX_HOLD", "3600", "number of seconds"),
    ("MAX_HOLD", True, "number of seconds"),
    ("SHOW_CALLER", 1, "is True or False"),
    ("REENTRANT", None, "True or False"),
    ("IN_TRANSACTION", "Hold", "'hold', 'error', 'allow'"),
    ("IN_TRANSACTION", None, "'hold', 'error', 'allow'"),
    ("IN_TRANSACTION", ["hold"], "'hold', 'error', 'allow'"),
    ("RETENTION", 0, "between 60 and 315,360,000 seconds"),
    ("RETENTION", 59.9, "between 60"),
    ("RETENTION", -1, "between 60"),
    ("RETENTION", None, "number of seconds"),
    ("RETENTION", True, "number of seconds"),
    ("RETENTION", "7d", "number of seconds"),
    ("RETENTION", math.inf, "finite"),
    ("RETENTION", 1e12, "between 60"),
    ("OPTIONS", None, "is a dict"),
    ("OPTIONS", [("a", 1)], "is a dict"),
]


@pytest.mark.parametrize(("key", "value", "said"), WRONG)
def test_what_is_wrong_is_refused_by_alias_and_key(key: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidLockBackendError) as caught:
        parse("shop", {"BACKEND": PATH, key: value})
    text = str(caught.value)
    assert f"DISTLOCKS['shop']['{key}']" in text
    assert said in text
    assert text.endswith(".")


def test_every_key_is_tried_above() -> None:
    keys = {field.name.upper() for field in fields(AliasConf)}
    assert keys == {key for key, _, _ in RIGHT} | {"BACKEND"}
    assert keys == {key for key, _, _ in WRONG} | {"LOCATION"}  # the backend's own to judge


def test_unknown_keys_are_refused_and_the_known_ones_named() -> None:
    raw: dict[Any, Any] = {"BACKEND": PATH, "TIMEOUT": 5, "ttl": 5, 7: 8}
    with pytest.raises(InvalidLockBackendError) as caught:
        parse("shop", raw)
    text = str(caught.value)
    assert "DISTLOCKS['shop'] has unknown keys: 7, TIMEOUT, ttl." in text
    for field in fields(AliasConf):
        assert field.name.upper() in text


@pytest.mark.parametrize("raw", [None, PATH, [PATH], 5])
def test_an_alias_that_is_no_dict_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidLockBackendError, match=r"DISTLOCKS\['shop'\] is a dict"):
        parse("shop", raw)


def test_a_missing_backend_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidLockBackendError, match=r"TableBackend"):
        parse("shop", {})


def test_max_hold_is_not_below_the_ttl() -> None:
    with pytest.raises(InvalidLockBackendError, match=r"'MAX_HOLD'\] \(5\) .* TTL \(30\)"):
        parse("shop", {"BACKEND": PATH, "TTL": 30, "MAX_HOLD": 5})
    assert parse("shop", {"BACKEND": PATH, "TTL": 5, "MAX_HOLD": 5}).max_hold == 5


def test_any_mapping_will_do_and_is_copied() -> None:
    options = {"COMMAND_TIMEOUT": 1}
    raw: Mapping[str, Any] = MappingProxyType({"BACKEND": PATH, "OPTIONS": options})
    conf = parse("shop", raw)
    options["COMMAND_TIMEOUT"] = 2
    assert conf.options == {"COMMAND_TIMEOUT": 1}


# -- OPTIONS ---------------------------------------------------------------------------------------


def test_options_are_judged_by_the_backends_own_functions() -> None:
    assert parse_options("shop", {"COMMAND_TIMEOUT": 2}, BaseLockBackend.options) == {
        "COMMAND_TIMEOUT": 2.0
    }
    assert parse_options("shop", {}, BaseLockBackend.options) == {}


@pytest.mark.parametrize("value", [0, -1, True, None, "5", math.nan, math.inf, 1e9, [5]])
def test_an_option_that_is_wrong_is_refused(value: Any) -> None:
    with pytest.raises(InvalidLockBackendError) as caught:
        parse_options("shop", {"COMMAND_TIMEOUT": value}, {"COMMAND_TIMEOUT": positive})
    assert str(caught.value).startswith("DISTLOCKS['shop']['OPTIONS']['COMMAND_TIMEOUT']: a posi")


def test_unknown_options_are_refused_and_the_known_ones_named() -> None:
    with pytest.raises(InvalidLockBackendError) as caught:
        parse_options("shop", {"SOCKET": 1, "A": 2}, {"COMMAND_TIMEOUT": positive})
    assert "['OPTIONS'] has unknown keys: A, SOCKET. Known to this backend: COMMAND_TIMEOUT." in (
        str(caught.value)
    )
    with pytest.raises(InvalidLockBackendError, match="Known to this backend: none"):
        parse_options("shop", {"SOCKET": 1}, {})
