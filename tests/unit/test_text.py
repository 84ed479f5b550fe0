"""Text from outside, in messages and log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_distlock import LockBackendError, LockNotAcquiredError, lock, locks
from django_distlock.core.text import MOST, shown
from django_distlock.core.values import Holder, HolderInfo

from .tools import Down, UnitBackend, claim_of, drain, opened

HOSTILE = {
    "line breaks": "host\n2026-01-01 ERROR forged\r\u2028\x85",
    "escape sequences": "\x1b[2J\x1b]0;title\x07\x9b1m",
    "right to left": "abc\u202egnp.exe\u200f",
    "lone surrogates": "\ud800 \udfff",
    "huge": "x" * 10_000_000,
    "huge, and each to be escaped": "\x1b" * 1_000_000,
}


@pytest.fixture
def backend() -> Iterator[UnitBackend]:
    """A store that a test may fill."""
    with opened() as made:
        yield made


def check(message: str, most: int = 1000) -> None:
    """Check that a message is one printable line that can be encoded."""
    assert message.isprintable()
    assert message.encode().decode() == message
    assert len(message) < most


@given(st.text(), st.integers(2, 50))
def test_whatever_it_is_it_is_one_printable_line(text: str, most: int) -> None:
    seen = shown(text, most)
    assert seen.isprintable()
    assert len(seen) <= most
    assert seen.encode().decode() == seen
    if text.isprintable() and len(text) <= most:
        assert seen == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", ""),
        ("süß 🔒", "süß 🔒"),
        ("a\nb", r"a\nb"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\ud800", r"\ud800"),
        ("x" * MOST, "x" * MOST),
        ("x" * (MOST + 1), "x" * (MOST - 1) + "…"),
    ],
)
def test_what_is_shown(text: str, seen: str) -> None:
    assert shown(text) == seen


@pytest.mark.parametrize("field", ["host", "thread", "task", "site"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_refused_lock_shows_its_holder_safely(
    backend: UnitBackend, text: str, field: str
) -> None:
    claim = claim_of(backend, "a", owner="another")
    backend.try_acquire(claim, 1.0)
    backend._space.rows[claim.key].note = json.dumps({field: text})
    with pytest.raises(LockNotAcquiredError) as info, lock("a", using=backend.alias, wait=0):
        pytest.fail("the block was entered")
    check(str(info.value))
    assert "Held by" in str(info.value)
    (seen,) = locks[backend.alias].held()
    assert getattr(seen.holder, field) == text  # as it is, for who looks at the field
    check(str(seen.holder), MOST + 1)


def test_a_huge_number_for_a_pid() -> None:
    check(str(HolderInfo.loads('{"pid": ' + "9" * 4000 + "}").holder), MOST + 1)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_a_driver_said_is_shown_safely(
    backend: UnitBackend, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend.before["try_acquire"].append(Down(text))
    with pytest.raises(LockBackendError) as info:
        lock("a", using=backend.alias, wait=0).acquire()
    check(str(info.value))
    drain(backend)  # what is released in the background would meet the next error
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):  # noqa: PT012
        lease = lock("a", using=backend.alias).acquire()
        assert lease
        backend.before["release"].append(Down(text))
        with lease:
            1 / 0  # noqa: B018 - the error
    ours = [each.getMessage() for each in caplog.records if backend.alias in each.getMessage()]
    assert any("While another error" in message for message in ours)
    for message in ours:
        check(message)


def test_an_ordinary_holder_is_shown_as_it_is() -> None:
    holder = Holder("web-1", 7, "Thread-3", "", "/srv/shop/sales.py:12 buy")
    assert str(holder) == "web-1 pid 7, Thread-3, /srv/shop/sales.py:12 buy"
