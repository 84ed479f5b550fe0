"""Names: which are accepted, their keys in the store, and the copy for people."""

from __future__ import annotations

import hashlib
import unicodedata
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_distlock.core.names import check_name, key_of, readable, unreadable
from django_distlock.exceptions import InvalidLockError

# Every code point: lone surrogates and control characters, too.
ANY_TEXT = st.text(st.characters(), max_size=40)
PRINTABLE = {chr(code) for code in range(0x20, 0x7F)}

# Names that some store takes for one another (traps, table of bad input).
LOOKALIKES = [
    " ", "\n", "a\0b", "a", "a\0", ".", "..", "/", "/a", "a/", "a//b", "a/b", "A", "a ", " a",
    "\u00e9", "e\u0301", "\u00df", "ss", "\U0001f512", "{x}", "a:b", "*", "?", "[", "%", "_",
    "\ud800", "\\ud800", "\udcff", "lock-01", "a" * 64, "a" * 65,
    "a" * 255, "a" * 256, "a" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("name", LOOKALIKES)
def test_any_text_that_is_not_empty_is_a_name(name: str) -> None:
    assert check_name(name) is name


@pytest.mark.parametrize("name", [None, 5, 0, b"a", object(), ["a"], ("a",), 1.5, True])
def test_other_types_are_refused(name: Any) -> None:
    with pytest.raises(
        InvalidLockError, match="must be a str; got " + type(name).__name__
    ) as caught:
        check_name(name, "shop")
    assert (caught.value.name, caught.value.alias) == (None, "shop")


def test_the_empty_name_is_refused() -> None:
    with pytest.raises(InvalidLockError, match="must not be empty") as caught:
        check_name("", "shop")
    assert caught.value.alias == "shop"


def test_a_name_of_more_than_ten_thousand_characters_is_refused() -> None:
    with pytest.raises(InvalidLockError, match="at most 10,000 characters; this one has 10,001"):
        check_name("a" * 10_001, "shop")


@given(ANY_TEXT)
@example("\ud83d\udd12")
@example("\\u0041")
@example("\\")
@example("\x7f\x80\n\r\t\0")
def test_the_readable_copy_is_printable_ascii_and_gives_the_name_back(name: str) -> None:
    copy = readable(name)
    assert set(copy) <= PRINTABLE
    assert unreadable(copy) == name


@given(ANY_TEXT, ANY_TEXT)
def test_different_names_have_different_copies(one: str, other: str) -> None:
    assert (readable(one) == readable(other)) == (one == other)


@given(st.text(st.sampled_from("\\xuUN{}0a9z\"' \u00e9\ud800"), max_size=12))
@example("\\")
@example("\\z")
@example("\\x4")
@example("\\N{no such name}")
def test_reading_a_damaged_copy_never_fails(text: str) -> None:
    assert isinstance(unreadable(text), str)


@given(ANY_TEXT, ANY_TEXT)
def test_a_key_is_64_hexadecimal_digits(prefix: str, name: str) -> None:
    key = key_of(prefix, name)
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
@example("a", "b:c", "a:b", "c")
@example("", "1:a", "1", ":a")
@example("", "ab", "ab", "")
def test_keys_are_equal_only_for_the_same_prefix_and_name(
    prefix: str, name: str, other_prefix: str, other_name: str
) -> None:
    same = (prefix, name) == (other_prefix, other_name)
    assert (key_of(prefix, name) == key_of(other_prefix, other_name)) == same


@given(ANY_TEXT)
def test_moving_the_border_between_prefix_and_name_changes_the_key(text: str) -> None:
    keys = {key_of(text[:cut], text[cut:]) for cut in range(len(text) + 1)}
    assert len(keys) == len(text) + 1


def test_names_that_stores_confuse_have_different_keys() -> None:
    keys = [key_of("", name) for name in LOOKALIKES]
    assert len(set(keys)) == len(LOOKALIKES)
    for one, other in combinations(("\u00e9", unicodedata.normalize("NFD", "\u00e9"), "e"), 2):
        assert key_of("p", one) != key_of("p", other)


def test_the_key_is_the_documented_digest() -> None:
    # Other programs and the next release have to find the same rows.
    assert key_of("\u00e9", "n") == hashlib.sha256(b"2:\xc3\xa9n").hexdigest()
    assert key_of("", "\ud800") == hashlib.sha256(b"0:\xed\xa0\x80").hexdigest()
