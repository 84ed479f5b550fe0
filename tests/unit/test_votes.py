"""Counting votes: any two quorums share a node, and every verdict is one for good."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_distlock.backends.redlock.votes import (
    Standing,
    Tally,
    Verdict,
    agreed_token,
    holders_of,
    quorum,
    standing,
    time_to_quorum,
)

SIZES = (3, 5, 7)
VOTES = ("yes", "no", "failed")


def tally(votes: list[str]) -> Tally:
    """Count the votes of as many nodes; "" has not voted yet."""
    return Tally(len(votes), *(votes.count(each) for each in VOTES))


@st.composite
def ballots(draw: st.DrawFn, *, whole: bool = False) -> list[str]:
    """Return what each of three, five or seven nodes said."""
    said = st.sampled_from(VOTES if whole else (*VOTES, ""))
    size = draw(st.sampled_from(SIZES))
    return draw(st.lists(said, min_size=size, max_size=size))


@pytest.mark.parametrize("nodes", SIZES)
def test_two_quorums_share_a_node(nodes: int) -> None:
    groups = list(combinations(range(nodes), quorum(nodes)))
    assert all(set(one) & set(other) for one in groups for other in groups)
    less = combinations(range(nodes), quorum(nodes) - 1)
    assert any(not set(one) & set(other) for one, other in combinations(list(less), 2))


@given(ballots(), st.data())
def test_a_verdict_is_not_taken_back(votes: list[str], data: st.DataObject) -> None:
    before = tally(votes).verdict
    after = tally([each or data.draw(st.sampled_from(VOTES)) for each in votes]).verdict
    if before is Verdict.OPEN:
        assert "" in votes
        assert after is not Verdict.OPEN
    else:
        assert before is after


@given(ballots(whole=True))
def test_a_verdict_says_what_it_says(votes: list[str]) -> None:
    needed = quorum(len(votes))
    counted = tally(votes)
    assert (counted.verdict is Verdict.YES) == (counted.yes >= needed)
    if counted.verdict is Verdict.DOWN:
        assert counted.yes + counted.no < needed
    if counted.verdict in (Verdict.NO, Verdict.SPLIT):
        assert counted.yes < needed
    if counted.verdict is Verdict.SPLIT:
        assert counted.yes + counted.no >= needed
    if counted.verdict is Verdict.NO:
        assert counted.yes + counted.failed < needed


def test_a_held_lock_is_never_called_down() -> None:
    """Tell the two apart in every case: a quorum that answered is not a store that is down."""
    for nodes in SIZES:
        for failed in range(nodes + 1):
            for no in range(nodes + 1 - failed):
                verdict = Tally(nodes, nodes - failed - no, no, failed).verdict
                assert (verdict is Verdict.DOWN) == (nodes - failed < quorum(nodes))


@given(st.sampled_from(SIZES), st.data())
def test_the_token_is_above_all_that_a_quorum_had_stored(nodes: int, data: st.DataObject) -> None:
    """Take any earlier grant: its token stood on a quorum. Ours is greater, however drawn."""
    small = st.integers(1, 6)
    stored = [data.draw(small) for _ in range(nodes)]
    earlier = sorted(stored)[nodes - quorum(nodes)]  # the greatest that a quorum has at least
    proposal = data.draw(small)
    drawn = [max(top + 1, proposal, data.draw(small)) for top in stored]
    granting = data.draw(st.sets(st.integers(0, nodes - 1), min_size=quorum(nodes), max_size=nodes))
    tokens = {number: drawn[number] for number in granting}
    token, behind = agreed_token(tokens, nodes)
    assert token > earlier
    after = {**tokens, **dict.fromkeys(behind, token)}
    assert sum(each >= token for each in after.values()) >= quorum(nodes)
    assert all(tokens[number] < token for number in behind)


@given(st.sampled_from(SIZES), st.integers(1, 9))
def test_what_all_drew_needs_no_second_round(nodes: int, token: int) -> None:
    assert agreed_token(dict.fromkeys(range(quorum(nodes)), token), nodes) == (token, [])


def test_less_than_a_quorum_has_no_token() -> None:
    with pytest.raises(ValueError, match="2 of 5 nodes are no quorum"):
        agreed_token({0: 7, 1: 7}, 5)


@given(st.sampled_from(SIZES), st.lists(st.sampled_from("abc"), max_size=7), st.integers(0, 3))
def test_of_those_who_split_the_votes_one_leads(nodes: int, held: list[str], silent: int) -> None:
    held = held[:nodes]
    silent = min(silent, nodes - len(held))
    places = {
        who: standing(who, held.count(who), [each for each in held if each != who], silent, nodes)
        for who in set(held)
    }
    assert list(places.values()).count(Standing.LEADING) <= 1
    if held and max(map(held.count, held)) + silent < quorum(nodes):
        assert list(places.values()).count(Standing.LEADING) == 1


@given(st.sampled_from(SIZES), st.data())
def test_nobody_waits_longer_than_until_a_quorum_is_free(nodes: int, data: st.DataObject) -> None:
    left = data.draw(st.lists(st.integers(1, 99), max_size=nodes))
    wait = time_to_quorum(left, nodes)
    free = nodes - sum(each > (wait or 0) for each in left)
    assert free >= quorum(nodes)
    if wait is not None:
        assert nodes - sum(each >= wait for each in left) < quorum(nodes)


def test_who_holds() -> None:
    assert holders_of({"a": 3}, 0, 5) == ["a"]
    assert holders_of({"a": 2, "b": 1}, 1, 5) == ["a"]  # perhaps, with the one that says nothing
    assert holders_of({"a": 3, "b": 4, "c": 2}, 0, 5) == ["b", "a"]  # who share it
    assert holders_of({"a": 2, "b": 2}, 0, 5) == []
    assert holders_of({}, 2, 5) == []
