"""Redlock's rounds on nodes that lose requests or answers, or read them twice or much later.

The nodes are a model here, so that hypothesis can choose what reaches which of them, and when. That
the scripts do what the model does, the contract suite shows on real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_distlock.backends.redlock import algorithm
from django_distlock.backends.redlock.algorithm import Names
from django_distlock.backends.redlock.rounds import (
    Answers,
    NotAskedError,
    Operation,
    QuorumError,
    Round,
    digest,
)
from django_distlock.core.values import Claim, Grant

NAMES = Names("test", 60_000)
SHOWN = [f"redis://node{number}" for number in range(5)]
NEAR = 50_000
KEY = "0" * 64


@dataclass
class Model:
    """A node that does what the scripts do; no lease runs out."""

    clock: int
    owner: str = ""
    attempt: str = ""
    token: int = 0
    shares: dict[str, str] = field(default_factory=dict)
    """The attempts of those who share it."""

    def run(self, script: str, words: tuple[Any, ...]) -> Any:
        """Run one call of a script."""
        self.clock += 1
        run: Callable[..., Any] = getattr(self, f"do_{script}")
        return run(*words)

    def do_acquire(
        self, key: str, index: str, owner: str, life: int, proposed: str, *texts: Any
    ) -> Any:
        token = int(proposed)
        *_, attempt, shared = texts
        if self.owner and self.owner != owner:
            return [1000, b"", digest(self.owner).encode()]
        if self.shares and not shared:
            return [1000, b"", b"shared"]
        if not self.owner and owner not in self.shares:
            if not max(self.token + 1, self.clock - NEAR) <= token <= self.clock + NEAR:
                token = max(self.token + 1, self.clock)
            self.token = token
        if shared:
            self.shares[owner] = attempt
        else:
            self.owner, self.attempt = owner, attempt
        return self.token

    def do_raise(self, key: str, owner: str, token: int) -> int:
        if self.owner != owner and owner not in self.shares:
            return 0
        self.token = max(self.token, token)
        return 1

    def do_release(self, key: str, index: str, owner: str, attempt: str) -> int:
        if self.owner == owner and attempt in ("", self.attempt):
            self.owner = ""
            return 1
        if owner in self.shares and attempt in ("", self.shares[owner]):
            del self.shares[owner]
            return 1
        return 0


@dataclass
class Contender:
    """Somebody who acquires, then releases, and so on, as the same or as another owner."""

    number: int
    data: st.DataObject
    nodes: list[Model]
    late: list[Callable[[], object]]
    grants: list[tuple[bool, int]]
    """Of each grant so far whether it is a share, and the token."""
    holding: dict[int, bool]
    """Who holds it, and whether as one of those who share it."""
    claim: Claim = field(init=False)
    turn: int = 0

    def __post_init__(self) -> None:
        self.steps = self.live()
        next(self.steps)

    def live(self) -> Any:
        """Acquire and release, stopping before each delivery to a node."""
        while True:
            self.turn += 1
            shared = self.data.draw(st.sampled_from([False, True]))
            self.claim = Claim("x", KEY, f"{self.number}-{self.turn}", 30.0, shared=shared)
            while (grant := (yield from self.drive(self.acquire()))) is None:
                pass
            assert isinstance(grant, Grant)
            assert not self.holding or (shared and all(self.holding.values())), "two hold it"
            self.holding[self.number] = shared
            before = [token for share, token in self.grants if not (share and shared)]
            assert grant.fencing_token > max(before, default=0), "the token did not rise"
            self.grants.append((shared, grant.fencing_token))
            yield
            del self.holding[self.number]
            yield from self.drive(
                algorithm.release(NAMES, self.claim, 1.0, SHOWN[: len(self.nodes)])
            )

    def acquire(self) -> Operation[Any]:
        proposal = self.data.draw(st.sampled_from([0, 1000, 1003, 1020, 500_000]))
        limit = self.data.draw(st.sampled_from([0.0, 60.0]))
        return algorithm.acquire(NAMES, self.claim, proposal, limit, SHOWN[: len(self.nodes)])

    def drive(self, operation: Operation[Any]) -> Any:
        """Carry an operation out; None when it did not get what it wanted."""
        answers: Any = None
        try:
            while True:
                answers = yield from self.deliver(operation.send(answers))
        except StopIteration as stop:
            return stop.value if isinstance(stop.value, Grant) else None
        except QuorumError:
            return None

    def deliver(self, round_: Round) -> Any:
        """Bring a round to the nodes, one by one."""
        answers: Answers = [None] * len(self.nodes)
        asked = range(len(self.nodes)) if round_.nodes is None else round_.nodes
        (words,) = round_.calls
        for number in asked:
            yield
            node, name = self.nodes[number], round_.script.name
            fates = ["good"] * 5 + ["lost", "unheard", "late", "twice"]
            fate = self.data.draw(st.sampled_from(fates))
            if fate == "twice":
                node.run(name, words)
            if fate in ("good", "twice"):
                answers[number] = [node.run(name, words)]
                continue
            answers[number] = TimeoutError("no answer")
            if fate == "unheard":
                node.run(name, words)
            elif fate == "late":
                self.late.append(partial(node.run, name, words))
        return answers


@pytest.mark.parametrize("size", [3, 5])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_holds_and_its_token_is_the_greatest(size: int, data: st.DataObject) -> None:
    nodes = [Model(data.draw(st.integers(990, 1010))) for _ in range(size)]
    late: list[Callable[[], object]] = []
    grants: list[tuple[bool, int]] = []
    holding: dict[int, bool] = {}
    some = [Contender(number, data, nodes, late, grants, holding) for number in range(3)]
    for _ in range(90):
        what = data.draw(st.integers(0, 3))
        if what < 3:
            next(some[what].steps)
        elif late:
            late.pop(data.draw(st.integers(0, len(late) - 1)))()


def test_an_undoing_that_comes_late_frees_no_later_attempt() -> None:
    """Grant, undo what is read late, grant again to the same owner: then the undoing is read."""
    claim = Claim("x", KEY, "me", 30.0)
    node = Model(1000)

    def attempt() -> Operation[Any]:
        """Begin an attempt, which this node grants."""
        operation = algorithm.acquire(NAMES, claim, 0, 0.0, SHOWN[:3])
        (words,) = next(operation).calls
        assert isinstance(node.run("acquire", words), int)
        return operation

    held: list[Any] = [[1000, b"", b"another"]]
    granted: list[Any] = [1001]
    undoing = attempt().send([granted, held, held])
    assert undoing.script.name == "release"
    with pytest.raises(StopIteration) as done:
        attempt().send([granted, granted, held])
    assert isinstance(done.value.value, Grant)
    assert node.run("release", tuple(undoing.calls[0])) == 0
    assert node.owner == "me"


@pytest.mark.parametrize("leads", [True, False])
def test_those_who_split_the_votes_come_again_after_random_delays(leads: bool) -> None:
    """Each has one node of five; the one that leads keeps it, the others make room before."""
    claim = Claim("x", KEY, "me", 30.0)
    rival = "~" if leads else "!"  # after and before all digests
    held: list[list[Any]] = [[[1000, b"", f"{rival}{number}".encode()]] for number in range(4)]
    operation = algorithm.acquire(NAMES, claim, 0, 60.0, SHOWN)
    asked = next(operation)
    assert asked.after == 0
    delays = []
    for _ in range(50):
        asked = operation.send([[1001], *held])
        if not leads:
            assert (asked.script.name, asked.nodes) == ("release", [0])
            asked = operation.send([[1], None, None, None, None])
        assert asked.script.name == "acquire"
        delays.append(asked.after)
    assert all(algorithm.RETRY[0] <= delay <= algorithm.RETRY[1] for delay in delays)
    assert len(set(delays)) > 40


def test_what_the_one_that_leads_was_granted_is_undone_also_where_it_was_not_asked_again() -> None:
    """A node grants, is down when the others are asked once more, and is told of the undoing."""
    claim = Claim("x", KEY, "me", 30.0)
    held: list[list[Any]] = [[[1000, b"", f"~{number}".encode()]] for number in range(4)]
    operation = algorithm.acquire(NAMES, claim, 0, 60.0, SHOWN)
    node = Model(1000)
    assert isinstance(node.run("acquire", next(operation).calls[0]), int)
    operation.send([[1001], *held])
    one_holds: list[list[Any]] = [[[1000, b"", b"another"]] for _ in range(4)]
    undoing = operation.send([NotAskedError("it is down"), *one_holds])
    assert (undoing.script.name, undoing.nodes) == ("release", [0])
    assert node.run("release", undoing.calls[0]) == 1


def test_the_model_grants() -> None:
    """See that the test above is not empty: alone, one gets the lock again and again."""

    class Good:
        def draw(self, strategy: Any) -> Any:
            return next(fates) if strategy.elements[0] == "good" else strategy.elements[0]

    fates = iter(lambda: "good", None)
    nodes = [Model(1000 + number) for number in range(5)]
    grants: list[tuple[bool, int]] = []
    good: Any = Good()
    alone = Contender(0, good, nodes, [], grants, {})
    for _ in range(100):
        next(alone.steps)
    assert len(grants) > 5
