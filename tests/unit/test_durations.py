"""Durations: what is a ttl and what is a wait, and what is refused before a store is asked."""

from __future__ import annotations

import copy
import enum
import math
import pickle
import sys
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_distlock.core.durations import (
    MAX_TTL,
    MIN_AGE,
    MIN_TTL,
    UNSET,
    check_age,
    check_ttl,
    check_wait,
    parse_age,
)
from django_distlock.exceptions import InvalidLockError


class Level(enum.IntEnum):
    """An int by another name."""

    FIVE = 5


NO_NUMBERS: list[Any] = [
    True, False, "5", "", b"5", Decimal("5"), Fraction(5), 5j, [5], object(), UNSET,
]  # fmt: skip
NOT_FINITE = [math.nan, math.inf, -math.inf]
BELOW = [0, 0.0, -0.0, -1, -0.5, 0.0004, 0.009999, timedelta(0), timedelta(seconds=-1)]
BEYOND = [MAX_TTL + 1, 1e15, 1e18, 2**31, 2**63, 10**30, 10**400, timedelta.max]


@pytest.mark.parametrize("value", [*NO_NUMBERS, *NOT_FINITE, *BELOW, *BEYOND, None])
def test_what_is_no_ttl_is_refused(value: Any) -> None:
    with pytest.raises(InvalidLockError) as caught:
        check_ttl(value, name="n", alias="a")
    assert isinstance(caught.value, ValueError)
    assert (caught.value.name, caught.value.alias) == ("n", "a")
    assert str(caught.value).startswith("ttl must ")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (MIN_TTL, 0.01),
        (0.4, 0.4),
        (5, 5.0),
        (Level.FIVE, 5.0),
        (MAX_TTL, MAX_TTL),
        (timedelta(minutes=2), 120.0),
        (timedelta(milliseconds=10), 0.01),
    ],
)
def test_a_ttl_is_made_float_seconds(value: Any, seconds: float) -> None:
    made = check_ttl(value)
    assert type(made) is float
    assert made == seconds


def test_a_store_may_have_a_shorter_longest_ttl() -> None:
    assert check_ttl(60, longest=60.0) == 60.0
    with pytest.raises(InvalidLockError, match=r"ttl must be between 0\.01 and 60 seconds; got 61"):
        check_ttl(61, longest=60.0)


@pytest.mark.parametrize("value", [*NO_NUMBERS, *NOT_FINITE, -1, -1e-9, timedelta(-1), 10**400])
def test_what_is_no_wait_is_refused(value: Any) -> None:
    with pytest.raises(InvalidLockError) as caught:
        check_wait(value, name="n", alias="a")
    assert (caught.value.name, caught.value.alias) == ("n", "a")
    assert str(caught.value).startswith("wait must ")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (0.5, 0.5),
        (Level.FIVE, 5.0),
        (1e300, 1e300),
        (timedelta(seconds=1.5), 1.5),
        (timedelta(0), 0.0),
        (timedelta.max, timedelta.max.total_seconds()),
    ],
)
def test_a_wait_is_made_float_seconds_or_none(value: Any, seconds: float | None) -> None:
    assert check_wait(value) == seconds


def test_the_message_names_what_was_given() -> None:
    with pytest.raises(InvalidLockError, match=r"^max_hold must be a number of seconds"):
        check_ttl("5", what="max_hold")
    with pytest.raises(InvalidLockError, match=r"^WAIT must be 0"):
        check_wait(-1, what="WAIT")


@given(st.floats() | st.integers() | st.timedeltas())
def test_a_ttl_is_accepted_exactly_within_its_range(value: float | timedelta) -> None:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        made = check_ttl(value)
    except InvalidLockError:
        assert not MIN_TTL <= number <= MAX_TTL
    else:
        assert MIN_TTL <= number <= MAX_TTL
        assert made == float(number)


@given(st.floats() | st.integers() | st.timedeltas())
def test_a_wait_is_accepted_exactly_when_finite_and_not_negative(value: float | timedelta) -> None:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        made = check_wait(value)
    except InvalidLockError:
        assert not 0 <= number <= sys.float_info.max
    else:
        assert made is not None
        assert made == float(number) >= 0
        assert math.isfinite(made)


@pytest.mark.parametrize("value", [*NO_NUMBERS, *NOT_FINITE, 0, 59.9, -60, None, 1e12, 10**400])
def test_what_is_no_age_is_refused(value: Any) -> None:
    with pytest.raises(InvalidLockError) as caught:
        check_age(value, what="RETENTION", alias="a")
    assert caught.value.alias == "a"
    assert str(caught.value).startswith("RETENTION must ")


@given(st.floats() | st.integers() | st.timedeltas())
def test_an_age_is_accepted_exactly_within_its_range(value: float | timedelta) -> None:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        made = check_age(value)
    except InvalidLockError:
        assert not MIN_AGE <= number <= MAX_TTL
    else:
        assert made == float(number)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60.0),
        ("604800", 604800.0),
        ("90.5", 90.5),
        ("90s", 90.0),
        ("90m", 5400.0),
        ("12h", 43200.0),
        ("1.5h", 5400.0),
        ("7d", 604800.0),
        ("2w", 1209600.0),
        (" 7d ", 604800.0),
        ("7 d", 604800.0),
    ],
)
def test_an_age_may_have_a_unit(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "d", "7D", "7y", "7d12h", "-7d", "1e3", "nan", "inf", "7,5d", "\u0667d", "7d\0"]
)
def test_what_is_no_age_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidLockError, match=r"--older-than must be a number .* 7d or 12h"):
        parse_age(text, what="--older-than")


@pytest.mark.parametrize("text", ["0", "59", "0.5m", "0d", "99999w", "9" * 400])
def test_an_age_with_a_unit_is_within_the_range(text: str) -> None:
    with pytest.raises(InvalidLockError, match=r"older_than must be (between 60 and|finite)"):
        parse_age(text)


def test_unset_stays_one_object() -> None:
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET
    assert copy.deepcopy(UNSET) is UNSET
    assert repr(UNSET) == "UNSET"
