"""Durations given by users, made into float seconds once, at the edge."""

from __future__ import annotations

import enum
import math
import re
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from ..exceptions import InvalidLockError

__all__ = [
    "UNSET",
    "Duration",
    "Unset",
    "Wait",
    "check_age",
    "check_limit",
    "check_ttl",
    "check_wait",
    "in_microseconds",
    "parse_age",
    "parse_duration",
]

Duration: TypeAlias = "int | float | timedelta"


class _Unset(enum.Enum):
    """The type of UNSET; an enum, so that it stays one object when pickled."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset.UNSET
"""Stands for 'as the settings of the alias say', where None has a meaning of its own."""

Unset: TypeAlias = Literal[_Unset.UNSET]

Wait: TypeAlias = "Duration | Unset | None"
"""A wait as users give it: None is no limit, UNSET is what the settings say."""

MOST_AT_ONCE = 1000
"""The highest limit of a lock: its holders are in one record of the store."""

MIN_TTL = 0.01
MAX_TTL = 10 * 365 * 86400.0

# An acquisition reads the clock before it reaches the row. Were the row used by another and cleaned
# in between, the token would be lower than that other's: so nothing that young is cleaned.
MIN_AGE = 60.0

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def in_microseconds(ttl: float) -> int:
    """Return a ttl in whole microseconds, one at least."""
    return max(1, round(ttl * 1_000_000))


def check_limit(value: Any, *, name: str | None = None, alias: str | None = None) -> int:
    """Return how many may hold a lock at once, an int from 1 on; raise InvalidLockError if not."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_AT_ONCE
    if not fits:
        raise InvalidLockError(
            f"limit must be an int from 1 to {MOST_AT_ONCE}, how many may hold the lock at once; "
            f"got {value!r}",
            name=name,
            alias=alias,
        )
    return int(value)


def _seconds(value: Any, what: str, name: str | None, alias: str | None) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    # bool is an int to Python, and True has meant "no limit" in one library and 1 s in another.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidLockError(
            f"{what} must be a number of seconds or a timedelta; got {value!r}",
            name=name,
            alias=alias,
        )
    try:
        number = float(value)
    except OverflowError as error:
        raise InvalidLockError(f"{what} must not be so large", name=name, alias=alias) from error
    if not math.isfinite(number):
        raise InvalidLockError(f"{what} must be finite; got {value!r}", name=name, alias=alias)
    return number


def check_ttl(
    value: Any,
    *,
    what: str = "ttl",
    name: str | None = None,
    alias: str | None = None,
    longest: float = MAX_TTL,
) -> float:
    """Return a ttl in seconds, from 0.01 up to the store's ``longest``.

    Raises InvalidLockError for anything else, bool, NaN and infinity included.
    """
    seconds = _seconds(value, what, name, alias)
    if not MIN_TTL <= seconds <= longest:
        raise InvalidLockError(
            f"{what} must be between {MIN_TTL} and {longest:,.0f} seconds; got {seconds:g}",
            name=name,
            alias=alias,
        )
    return seconds


def check_wait(
    value: Any, *, what: str = "wait", name: str | None = None, alias: str | None = None
) -> float | None:
    """Return a wait in seconds: 0 tries once, None waits without limit.

    Raises InvalidLockError for anything else, negative numbers, bool, NaN and infinity included.
    """
    if value is None:
        return None
    seconds = _seconds(value, what, name, alias)
    if seconds < 0:
        raise InvalidLockError(
            f"{what} must be 0 (try once), a positive number of seconds, or None (no limit); "
            f"got {seconds:g}",
            name=name,
            alias=alias,
        )
    return seconds


def check_age(value: Any, *, what: str = "older_than", alias: str | None = None) -> float:
    """Return for how many seconds a name has to be idle before it is cleaned: from 60.

    Raises InvalidLockError for anything else, bool, NaN and infinity included.
    """
    seconds = _seconds(value, what, None, alias)
    if not MIN_AGE <= seconds <= MAX_TTL:
        raise InvalidLockError(
            f"{what} must be between {MIN_AGE:g} and {MAX_TTL:,.0f} seconds; got {seconds:g}",
            alias=alias,
        )
    return seconds


def parse_age(text: str, *, what: str = "older_than") -> float:
    """Return the seconds that ``text`` means, as `parse_duration`; judged as by `check_age`."""
    return check_age(parse_duration(text, what=what), what=what)


def parse_duration(text: str, *, what: str) -> float:
    """Return the seconds that ``text`` means: ``"604800"``, ``"0.5"``, ``"12h"``, ``"7d"``.

    Raises InvalidLockError for anything else.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", text, re.ASCII)
    if found is None:
        raise InvalidLockError(
            f"{what} must be a number of seconds, or a number with one of the units "
            f"{', '.join(_UNITS)} after it, such as 7d or 12h; got {text!r}"
        )
    return float(found[1]) * _UNITS[found[2] or "s"]
