"""Errors: their tree, what they carry, how they read, and that they pickle."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from django_distlock import Holder, exceptions
from django_distlock.exceptions import (
    InvalidLockBackendError,
    InvalidLockError,
    LockBackendError,
    LockError,
    LockNotAcquiredError,
    LockTimeoutError,
    StoreConflictError,
    StoreUnavailableError,
    UnsupportedOperationError,
)

CLASSES: list[type[LockError]] = [
    each
    for each in vars(exceptions).values()
    if isinstance(each, type) and issubclass(each, LockError)
]
HOLDER = Holder("db1", 7, "MainThread")
NAMES = [
    "a", "", "a" * 119, "a" * 120, "a" * 121, "a" * 10_000, "a\0b", "a\nb", "\x1b[31mred", "\ud800",
    "\u202ereversed", "\u00e9\U0001f512", "a'b\"c", "\u2028", "%s {x}",
]  # fmt: skip


def picture() -> dict[str, str | None]:
    """Return the tree drawn in the module's docstring: each class and its parent."""
    tree: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (exceptions.__doc__ or "").splitlines():
        found = re.match(r"^    ([\u2502\u251c\u2514\u2500 ]*)(\w+Error)\b", line)
        if found:
            depth, name = len(found[1]), found[2]
            above = [(d, n) for d, n in above if d < depth]
            tree[name] = above[-1][1] if above else None
            above.append((depth, name))
    return tree


def test_the_tree_is_as_drawn() -> None:
    drawn = picture()
    assert set(drawn) == {name for name in exceptions.__all__ if name.endswith("Error")}
    for name, parent in drawn.items():
        base = getattr(exceptions, name).__bases__[0]
        assert base.__name__ == (
            parent or {"LockError": "Exception"}.get(name, "ImproperlyConfigured")
        )


def test_only_the_internal_conflict_is_not_drawn() -> None:
    undrawn = {each for each in CLASSES if each.__name__ not in exceptions.__all__}
    assert undrawn == {StoreConflictError, StoreUnavailableError}
    assert issubclass(StoreConflictError, LockBackendError)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (LockTimeoutError, TimeoutError),
        (InvalidLockError, ValueError),
        (UnsupportedOperationError, NotImplementedError),
        (InvalidLockBackendError, ImproperlyConfigured),
    ],
)
def test_errors_are_caught_by_the_base_that_people_know(
    error: type[Exception], base: type[Exception]
) -> None:
    with pytest.raises(base, match=r"^told$"):
        raise error("told")


def test_merely_held_is_never_a_failure_of_the_store() -> None:
    assert not issubclass(LockNotAcquiredError, LockBackendError)
    assert not issubclass(LockBackendError, LockNotAcquiredError)


def make(kind: type[LockError], **given: Any) -> LockError:
    """Make an error of any kind, with all that it may carry."""
    if issubclass(kind, LockNotAcquiredError):
        given |= {"retry_after": 2.5, "holder": HOLDER}
    return kind("what to do", **given)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_pickles_with_all_it_carries(kind: type[LockError], protocol: int) -> None:
    error = make(kind, name="n\0\ud800", alias="shop")
    twin = pickle.loads(pickle.dumps(error, protocol))
    assert type(twin) is kind
    assert (twin.name, twin.alias) == ("n\0\ud800", "shop")
    assert str(twin) == str(error)
    assert twin.args == error.args
    if isinstance(twin, LockNotAcquiredError):
        assert (twin.retry_after, twin.holder) == (2.5, HOLDER)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_copies(kind: type[LockError]) -> None:
    error = make(kind, name="n", alias="shop")
    for twin in (copy.copy(error), copy.deepcopy(error)):
        assert (type(twin), twin.name, twin.alias, str(twin)) == (kind, "n", "shop", str(error))


def test_the_settings_error_pickles() -> None:
    twin = pickle.loads(pickle.dumps(InvalidLockBackendError("DISTLOCKS is wrong")))
    assert type(twin) is InvalidLockBackendError
    assert str(twin) == "DISTLOCKS is wrong"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_may_have_nothing_to_carry(kind: type[LockError]) -> None:
    error = kind()
    assert (error.name, error.alias, str(error)) == (None, None, "")
    assert getattr(error, "retry_after", None) is None


def test_the_message_ends_with_the_lock_and_its_alias() -> None:
    assert str(LockError("Gone", name="a b", alias="shop")) == "Gone [lock 'a b', alias 'shop']"
    assert str(LockError("Gone", name="a")) == "Gone [lock 'a']"
    assert str(LockError("Gone", alias="shop")) == "Gone [alias 'shop']"
    assert str(LockError("Gone")) == "Gone"
    assert str(LockError("Gone", name="")) == "Gone [lock '']"


def check_shown(name: str) -> None:
    """Assert that a name is shown in one short line that no terminal can be fooled by."""
    text = str(LockError("Gone", name=name, alias="shop"))
    assert text.isprintable()
    assert len(text) < 120 * 10 + 60
    text.encode()
    if name.isascii() and name.isprintable() and len(name) <= 120:
        assert repr(name) in text


@pytest.mark.parametrize("name", NAMES)
def test_a_long_or_hostile_name_is_shortened_and_escaped(name: str) -> None:
    check_shown(name)


@given(st.text(st.characters(), max_size=300))
def test_any_name_is_shown_in_one_printable_line(name: str) -> None:
    check_shown(name)


def test_a_long_name_is_cut_and_the_cut_is_shown() -> None:
    text = str(LockError("Gone", name="x" * 10_000))
    assert text == f"Gone [lock '{'x' * 120}\u2026']"
    error = LockError("Gone", name="x" * 10_000)
    assert error.name == "x" * 10_000, "only the message is cut"
