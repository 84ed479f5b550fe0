"""The checker finds what was planted, and finds nothing in what can have happened."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.proof.checker import Promise, holds, judge
from tests.faults.proof.history import Call, Log, read
from tests.faults.proof.oracle import is_linearizable
from tests.faults.proof.resource import Resource, Writer
from tests.faults.proof.run import shortest

PROMISE = Promise(ttl=1.0, vanished=1.0, recovery=0.5)


def call(op: str, begin: float, end: float | None, token: int = 0, **facts: Any) -> Call:
    """Return a call, by default ok, of the owner that has this token."""
    outcome = facts.pop("outcome", "info" if end is None else "ok")
    proc = facts.pop("proc", f"p{token}")
    told = {"token": token, "owner": f"o{token}"} | facts if token else facts
    return Call(proc, op, "n", begin, end, outcome, told)


def history(tokens: int = 3) -> list[Call]:
    """Return a history in which nothing is wrong: one holder after the other, each writes."""
    calls = []
    for number in range(1, tokens + 1):
        at = float(number)
        token = number * 10
        calls += [
            call("acquire", at - 0.9, at, token, wait=5),
            call("check", at + 0.2, at + 0.21, token),
            call("accept", at + 0.3, at + 0.31, token, count=number),
            call("write", at + 0.29, at + 0.32, token),
            call("release", at + 0.5, at + 0.6, token),
        ]
    return calls


def sharing(token: int, begin: float, end: float, **facts: Any) -> list[Call]:
    """Return what one does who holds a lock that is shared."""
    told = {"shared": True, "limit": 0, "slot": None} | facts
    return [
        call("acquire", begin - 0.1, begin, token, wait=0, **told),
        call("check", begin, begin + 0.01, token),
        call("release", end, end + 0.01, token),
    ]


def slot(token: int, begin: float, end: float, number: int) -> list[Call]:
    """Return what one does who has a slot of two."""
    return sharing(token, begin, end, shared=False, limit=2, slot=number)


def kinds(calls: list[Call], promise: Promise = PROMISE) -> set[str]:
    """Return what kinds of violation are in a history."""
    return {each.kind for each in judge(calls, promise).violations}


def test_nothing_is_wrong() -> None:
    verdict = judge(history(), PROMISE)
    assert verdict.violations == []
    assert (verdict.grants, verdict.writes, verdict.operations) == (3, 3, 12)
    assert shortest(verdict.violations) == "nothing is wrong"


PLANTED: dict[str, list[Call]] = {
    "two holders": [call("check", 2.9, 2.91, 10)],
    "stale write": [call("accept", 2.8, 2.81, 10, count=3), call("write", 2.7, 2.8, 10)],
    "unknown token": [call("accept", 9.0, 9.1, 70, count=4)],
    "lost write": [call("accept", 9.0, 9.1, 30, count=7)],
    "shared token": [call("acquire", 2.1, 3.0, 30, owner="other", wait=0)],
    "token order": [call("acquire", 6.0, 6.1, 25, wait=0)],
    "loss not noticed": [
        call("acquire", 6.0, 6.1, 40, wait=0),
        call("break", 6.2, 6.3, 40),
        call("check", 7.4, 7.5, 40),
    ],
    "lost wake-up": [call("acquire", 6.0, 9.0, outcome="fail", wait=3)],
    "leak": [call("leak", 9.0, 9.0)],
}


def test_who_waits_while_the_store_is_away_waits_in_vain() -> None:
    """Outages, and what follows them, are taken off; those that overlap only once."""
    waiter = call("acquire", 6.0, 9.0, outcome="fail", wait=3)  # 1.5 s are allowed
    away = [call("fault", 6.0, 6.2, store=True), call("fault", 6.1, 6.9, store=True)]  # until 7.4
    later = [call("fault", 7.7, 7.8, store=True), call("fault", 20.0, 21.0, store=True)]  # 8.3
    assert kinds([*history(), waiter, *away]) == {"lost wake-up"}  # 1.6 s
    assert kinds([*history(), waiter, *away, *later]) == set()  # 1.0 s
    assert kinds([*history(), waiter, *later]) == {"lost wake-up"}  # 2.4 s


@pytest.mark.parametrize("kind", PLANTED)
def test_what_was_planted_is_found(kind: str) -> None:
    planted = [*history(), *PLANTED[kind]]
    if kind in ("stale write", "lost write"):  # in the order in which the resource wrote them
        planted.sort(key=lambda each: each.begin)
        count = iter(range(1, 9))
        if kind == "stale write":
            planted = [
                replace(each, facts=each.facts | {"count": next(count)})
                if each.op == "accept"
                else each
                for each in planted
            ]
    found = judge(planted, PROMISE).violations
    assert {each.kind for each in found} == {kind}
    text = shortest(found)
    assert text.startswith(f"{{'{kind}': ")
    assert "'n'" in text


MODES: dict[str, tuple[str, list[Call]]] = {
    "readers": ("", [*sharing(10, 1.0, 3.0), *sharing(20, 2.0, 4.0)]),
    "a reader and then a writer": (
        "",
        [*sharing(10, 1.0, 3.0), *sharing(20, 3.1, 4.0, shared=False)],
    ),
    "a writer beside a reader": (
        "two holders",
        [*sharing(10, 1.0, 3.0), *sharing(20, 2.0, 4.0, shared=False)],
    ),
    "a reader beside a writer": (
        "two holders",
        [*sharing(10, 1.0, 3.0, shared=False), *sharing(20, 2.0, 4.0)],
    ),
    "a writer beside the second of two readers": (
        "two holders",
        [
            *sharing(10, 1.0, 5.0),
            *sharing(20, 2.0, 2.5),
            *sharing(30, 3.0, 4.0, shared=False),
        ],
    ),
    "two slots": ("", [*slot(10, 1.0, 3.0, 0), *slot(20, 2.0, 4.0, 1), *slot(30, 3.1, 5.0, 0)]),
    "three slots of two": (
        "too many holders",
        [*slot(10, 1.0, 5.0, 0), *slot(20, 2.0, 5.0, 1), *slot(30, 3.0, 5.0, 2)],
    ),
    "a slot twice": ("too many holders", [*slot(10, 1.0, 3.0, 1), *slot(20, 2.0, 4.0, 1)]),
}


@pytest.mark.parametrize("what", MODES)
def test_locks_that_several_hold(what: str) -> None:
    kind, calls = MODES[what]
    assert kinds(calls) == ({kind} if kind else set())


def test_two_owners_who_write_with_one_token() -> None:
    calls = [*history(1), call("accept", 3.0, 3.1, 10, owner="other", count=2)]
    assert kinds(calls) == {"shared token"}


def test_one_who_was_broken_may_be_sure_until_its_next_renewal() -> None:
    calls = [
        *history(1),
        call("acquire", 6.0, 6.1, 40, wait=0),
        call("break", 6.2, 6.3, 40),
        call("acquire", 6.3, 6.4, 50, wait=0),
        call("check", 6.6, 6.7, 40),
        call("check", 6.9, 6.95, 50),
    ]
    assert kinds(calls) == set()
    del calls[-4]
    assert kinds(calls) == {"two holders"}


def test_one_who_is_stopped_before_its_acquisition_returns_is_not_sure_then() -> None:
    late = call("acquire", 5.0, 6.5, 40, wait=0, sure=None)
    other = [call("acquire", 6.1, 6.2, 50, wait=0, sure=6.2), call("check", 6.8, 6.9, 50)]
    assert kinds([*history(), late, *other]) == set()
    assert kinds([*history(), late, *other, call("check", 6.6, 6.7, 40)]) == {"two holders"}
    sure = replace(late, facts=late.facts | {"sure": 6.5})
    assert kinds([*history(), sure, *other]) == {"two holders"}


def test_what_nobody_knows_is_no_violation() -> None:
    calls = [
        *history(),
        call("acquire", 0.0, None),
        call("acquire", 2.0, None),
        call("write", 2.0, None, 20),
    ]
    assert kinds(calls) == set()


def test_moments_that_touch_are_not_an_overlap() -> None:
    calls = [call("acquire", 0, 1, 10), call("release", 2, 3, 10), call("acquire", 0, 2, 20)]
    assert kinds(calls) == set()
    assert [(hold.begin, hold.end) for hold in holds(calls)] == [(1, 2), (2, 2)]


def test_who_waits_while_the_store_is_away_has_not_lost_a_wake_up() -> None:
    waiting = call("acquire", 6.0, 9.0, outcome="fail", wait=3)
    fault = Call("nemesis", "fault", "", 6.1, 7.5, "ok", {"kind": "crash", "store": True})
    assert kinds([*history(), waiting, fault]) == set()
    killed = replace(fault, facts={"kind": "client killed", "store": False})
    assert kinds([*history(), waiting, killed]) == {"lost wake-up"}


def test_a_candidate_sleeps_while_the_store_fails() -> None:
    later = [call("acquire", 6.0, 18.0, 40, wait=math.inf), call("release", 18.1, 18.2, 40)]
    assert kinds([*history(), *later]) == set()
    too_late = call("acquire", 6.0, 23.0, 40, wait=math.inf)
    assert kinds([*history(), too_late]) == {"lost wake-up"}


def test_without_a_promise_of_exclusion_two_holders_are_none() -> None:
    calls = [*history(), *PLANTED["two holders"]]
    assert kinds(calls, replace(PROMISE, exclusive=False)) == set()


# -- the search that the quick checks are judged by ------------------------------------------------


def test_the_oracle_on_what_is_known() -> None:
    assert is_linearizable([])
    assert is_linearizable(history())
    # Two at once.
    assert not is_linearizable([call("acquire", 0, 1, 1), call("acquire", 2, 3, 2)])
    # A release that nobody knows of explains it, if it was begun before.
    lost = call("release", 1.5, None, 1)
    assert is_linearizable([call("acquire", 0, 1, 1), lost, call("acquire", 2, 3, 2)])
    late = call("release", 3.5, None, 1)
    assert not is_linearizable([call("acquire", 0, 1, 1), late, call("acquire", 2, 3, 2)])
    # Tokens that fall.
    falling = [call("acquire", 0, 1, 5), call("release", 1, 2, 5), call("acquire", 3, 4, 4)]
    assert not is_linearizable(falling)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 12), st.booleans())
def test_the_quick_checks_say_what_the_oracle_says(seed: int, count: int, spoil: bool) -> None:
    chance = random.Random(seed)
    calls: list[Call] = []
    at = 0.0
    for token in range(1, count + 1):
        asked = max(0.0, at - chance.uniform(0, 3))
        granted = at + chance.uniform(0, 1)
        freed = granted + chance.uniform(0, 2)
        done = freed + chance.uniform(0, 1)
        at = chance.uniform(freed, done)
        calls += [call("acquire", asked, granted, token), call("release", freed, done, token)]
    if spoil:  # somebody is granted it while another is sure
        victim = chance.choice([each for each in calls if each.op == "acquire"])
        end = next(c.begin for c in calls if c.op == "release" and c.token == victim.token)
        middle = (victim.end or 0.0) + (end - (victim.end or 0.0)) / 2
        calls.append(call("acquire", middle - 0.001, middle, count + 1))
        calls.append(call("release", middle + 50, middle + 51, count + 1))
    found = judge(calls, PROMISE).violations
    assert is_linearizable(calls) == (not found)
    assert bool(found) == spoil


# -- what it is written to, and read from ----------------------------------------------------------


def test_a_call_that_never_ended_is_one_that_nobody_knows(tmp_path: Path) -> None:
    log = Log(tmp_path, "p")
    with log.call("acquire", "n", wait=1) as note:
        note.say("ok", token=7)
    with pytest.raises(KeyboardInterrupt), log.call("write", "n", token=7):
        raise KeyboardInterrupt
    with (tmp_path / "p.jsonl").open("a") as file:
        file.write('{"call": 2, "op": "check", "phase": "invoke", "name": "n", "t": 1e9}\n{"cal')
    first, second, third = read(tmp_path)
    assert (first.op, first.outcome, first.token, first.facts["wait"]) == ("acquire", "ok", 7, 1)
    assert first.end is not None
    assert (second.outcome, second.end) == ("info", None)
    assert (third.op, third.outcome, third.end) == ("check", "info", None)


def test_the_resource_refuses_an_older_token_and_another_owner(tmp_path: Path) -> None:
    with Resource(tmp_path):
        writer = Writer(tmp_path)
        assert writer.write("n", 5, "a")
        assert writer.write("n", 5, "a")
        assert not writer.write("n", 5, "b")
        assert not writer.write("n", 4, "a")
        assert writer.write("other", 1, "a")
        assert writer.write("n", 6, "b")
        writer.close()
    counts = [each.facts["count"] for each in read(tmp_path) if each.op == "accept"]
    assert counts == [1, 2, 1, 3]
