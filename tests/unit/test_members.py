"""Who is let in where several hold a lock: decided in one place, for every store that compares."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_distlock.core.members import WANTED, Member, Members
from django_distlock.core.values import Claim, HolderInfo, Refusal

NOW = 1_700_000_000_000_000
SECOND = 1_000_000

members = st.builds(
    Member,
    st.text(min_size=1),
    st.integers(1, NOW),
    st.integers(0, NOW),
    st.integers(0, 2 * NOW),
    st.none() | st.integers(0, 999),
    st.text(),
)


def claim(**mode: Any) -> Claim:
    """Return a claim by a new owner."""
    return Claim("n", "k", secrets.token_hex(16), 10.0, "{}", **mode)


def joined(held: Members, asked: Claim, now: int = NOW) -> Members:
    """Join, which has to be granted."""
    answer = held.joined(asked, now, 7)
    assert isinstance(answer, Members)
    return answer


def refused(held: Members, asked: Claim, now: int = NOW) -> Refusal:
    """Be refused."""
    answer = held.joined(asked, now, 7)
    assert isinstance(answer, Refusal)
    return answer


@given(st.integers(0, 1000), st.integers(0, NOW), st.lists(members).map(tuple))
def test_they_are_read_as_they_were_written(
    limit: int, wanted: int, all_of: tuple[Member, ...]
) -> None:
    held = Members(limit, wanted, all_of)
    text = held.dumps()
    assert Members.loads(text) == held
    assert text.isascii()
    assert Members.are_in(text)


@given(st.text() | st.builds(HolderInfo).map(HolderInfo.dumps))
def test_what_is_none_is_read_as_none(text: str) -> None:
    if Members.loads(text) is not None:
        assert Members.are_in(text)


@pytest.mark.parametrize("text", ["", "[", "[1]", "[1,2,3]", "[0,0,[[1]]]", "{}", "[[],0,[]]"])
def test_damaged_text(text: str) -> None:
    assert Members.loads(text) is None


def test_who_asks_again_keeps_its_token_and_its_slot() -> None:
    asked = claim(limit=2)
    first = joined(Members(), asked)
    again = first.joined(asked, NOW + SECOND, 99)
    assert isinstance(again, Members)
    mine = again.of(asked.owner)
    assert mine is not None
    assert (mine.token, mine.slot, mine.expires) == (7, 0, NOW + 11 * SECOND)


def test_the_lowest_slot_that_is_free() -> None:
    held = Members()
    claims = [claim(limit=3) for _ in range(3)]
    for each in claims:
        held = joined(held, each)
    refusal = refused(held, claim(limit=3), NOW + SECOND)
    assert refusal.remaining == 9
    held = held.without(claims[1].owner)
    held = joined(held, claim(limit=3))
    assert [each.slot for each in held.all] == [0, 2, 1]


@pytest.mark.parametrize(
    ("held", "asked", "other"),
    [
        ({"limit": 3}, {"limit": 2}, 3),
        ({"limit": 3}, {"shared": True}, 3),
        ({"limit": 3}, {}, 3),
        ({"shared": True}, {"limit": 3}, 0),
        ({"shared": True}, {}, None),
    ],
)
def test_another_limit(held: dict[str, Any], asked: dict[str, Any], other: int | None) -> None:
    refusal = joined(Members(), claim(**held)).refusal(claim(**asked), NOW)
    assert refusal is not None
    assert refusal.other_limit == other


def test_who_waits_to_be_alone_keeps_others_out_for_a_while() -> None:
    reader, writer = claim(shared=True), claim(waits=True)
    held = joined(Members(), reader)
    assert held.awaited(claim(), NOW) is None  # it does not wait
    assert held.awaited(claim(shared=True, waits=True), NOW) is None
    wanted = held.awaited(writer, NOW)
    assert wanted is not None
    assert wanted.awaited(writer, NOW) is None  # it is known
    assert wanted.awaited(writer, NOW + WANTED) is not None
    refused(wanted, claim(shared=True))
    assert wanted.renewed(reader, NOW).of(reader.owner) is not None
    joined(wanted, claim(shared=True), NOW + WANTED)
    # Also when the last reader has gone, so that the writer is next.
    empty = wanted.without(reader.owner)
    refused(empty, claim(shared=True))
    assert empty.refusal(writer, NOW) is None


def test_who_ran_out_is_none_of_them() -> None:
    held = joined(joined(Members(), claim(shared=True)), claim(shared=True), NOW + SECOND)
    assert len(held.living(NOW + 10 * SECOND).all) == 1
    assert held.living(NOW + SECOND) is held
    assert held.ends() == NOW + 11 * SECOND
    assert held.living(NOW + 11 * SECOND) == Members(all=())
