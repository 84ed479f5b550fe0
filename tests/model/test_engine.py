"""The engine's flow of an acquisition, in every order of steps, losses and crashes of its callers.

The flow is the very one that acquires. The store is a value: who holds the lock, and its token. A
call may be carried out or not, and answered, or ended by an error, a conflict, or Ctrl-C; what the
flow leaves to the background is released there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias
from unittest import mock

import pytest

from django_distlock.core import flow
from django_distlock.core.flow import Call, Flow, Granted, Pause, Step
from django_distlock.core.values import Claim, Grant, Refusal
from django_distlock.exceptions import LockBackendError, StoreConflictError
from tests.model.search import Found, search
from tests.unit.steps import NoStore

TTL = 10.0
WAIT = 0.5
ERRORS: dict[str, Callable[[], BaseException]] = {
    "an error": lambda: LockBackendError("no answer"),
    "a conflict": lambda: StoreConflictError("a deadlock"),
    "Ctrl-C": KeyboardInterrupt,
}
Choice: TypeAlias = "tuple[int, str]"
"""Who goes on, and how; the number of a client that there is not is that of the world."""
NO_ONE = -1


@dataclass
class Store:
    """The lock, as a store keeps it."""

    owner: str = ""
    token: int = 0
    until: float = 0.0
    said: float = TTL
    """How long it says that a grant holds."""
    rises: int = 1

    def do(self, verb: str, claim: Claim, now: float) -> object:
        """Carry a call out."""
        held = self.owner if now < self.until else ""
        if verb == "try_acquire":
            if held not in ("", claim.owner):
                return Refusal(self.until - now)
            self.token += 0 if held else self.rises
            self.owner, self.until = claim.owner, now + TTL
            return Grant(self.token, self.said)
        mine = held == claim.owner
        if mine:
            self.owner = ""
        return mine


@dataclass
class Client:
    """One that acquires, holds and releases."""

    steps: Iterator[Step] = field(init=False)
    step: Step | None = None
    held: Granted | None = None
    history: tuple[Hashable, ...] = ()
    state: str = "new"
    releasing: bool = False


class Holding(Pause):
    """The body of the block."""


class World:
    """What has come of some choices."""

    def __init__(self, store: Store, clients: int, faults: int, passes: bool) -> None:
        self.store, self.now, self.faults = store, 0.0, faults
        self.abandoned: list[Claim] = []
        self.token = 0
        self.wrong = ""
        self.passed = not passes
        self.clients = [Client() for _ in range(clients)]
        for number, client in enumerate(self.clients):
            client.steps = self._live(number)

    def _live(self, number: int) -> Flow[None]:
        claim = Claim("n", "k", f"owner {number}", TTL, waits=True)
        client = self.clients[number]
        answer: Granted | Refusal = yield from flow.acquire(
            NoStore(),
            claim,
            until=self.now + WAIT,
            clock=lambda: self.now,
            delays=itertools.repeat(1.0),
            abandon=self.abandoned.append,
        )
        if isinstance(answer, Refusal):
            return
        client.held = answer
        if answer.fencing_token <= self.token:
            self.wrong = f"token {answer.fencing_token} after {self.token}"
        self.token = max(self.token, answer.fencing_token)
        yield Holding(NoStore(), "pause", (claim, 0.0), "n")
        client.held, client.releasing = None, True
        try:
            yield from flow.insist(NoStore(), "release", claim, patience=1.0)
        except LockBackendError:
            self.abandoned.append(claim)

    # -- what can happen ---------------------------------------------------------------------------

    def choices(self) -> Iterator[Choice]:
        """Return what can be next."""
        for number, client in enumerate(self.clients):
            if client.state == "new":
                yield number, "begins"
            elif client.state == "on":
                yield number, "done"
                if self.faults:
                    yield number, "vanishes"
                    if isinstance(client.step, Holding):
                        continue
                    paused = isinstance(client.step, Pause)
                    for error in ["Ctrl-C"] if paused else ERRORS:
                        if error == "Ctrl-C" and client.releasing:
                            continue  # see Hold.release
                        yield number, f"{error} before"
                        if not paused:
                            yield number, f"{error} after"
        if self.abandoned:
            yield NO_ONE, "background"
        if not self.passed and any(each.state != "new" for each in self.clients):
            yield NO_ONE, "ttl"

    def take(self, choice: Choice) -> None:
        """Have it happen."""
        number, what = choice
        if what == "background":
            claim = self.abandoned.pop(0)
            self.store.do("release", claim, self.now)
        elif what == "ttl":
            self.now, self.passed = self.now + 2 * TTL, True
        else:
            self._go_on(self.clients[number], what)

    def _go_on(self, client: Client, what: str) -> None:
        client.history += ((what, self.now),)
        if what == "vanishes":
            client.state, client.held, self.faults = "dead", None, self.faults - 1
            return
        answer: Any = None
        step = client.step
        if what == "begins":
            client.state = "on"
        elif isinstance(step, Pause):
            self.now += step.args[1] if what == "done" else 0.0
        elif isinstance(step, Call) and not what.endswith("before"):
            answer = self.store.do(step.verb, step.args[0], self.now)
            client.history += (repr(answer),)
        error, _, when = what.rpartition(" ")
        try:
            if when in ("before", "after"):
                self.faults -= 1
                client.step = client.steps.throw(ERRORS[error]())  # type: ignore[attr-defined]
            else:
                client.step = client.steps.send(answer)  # type: ignore[attr-defined]
        except (StopIteration, LockBackendError, KeyboardInterrupt):
            client.step, client.state = None, "over"

    # -- what has to be so -------------------------------------------------------------------------

    def judge(self, is_end: bool) -> str:
        """Return what is wrong."""
        sure = [each for each in self.clients if each.held and self.now < each.held.deadline]
        if len(sure) > 1:
            return f"{len(sure)} hold it"
        if is_end and self.store.owner and self.now < self.store.until:
            owner = self.clients[int(self.store.owner.split()[1])]
            if owner.state != "dead":
                return "it is held by one that has gone"
        return self.wrong

    def key(self) -> Hashable:
        """Return what is equal where all that may follow is."""
        left = [claim.owner for claim in self.abandoned]
        clients = []
        for number, each in enumerate(self.clients):
            owner = f"owner {number}"
            places = tuple(place for place, name in enumerate(left) if name == owner)
            clients.append((each.state, repr(each.history), places, owner == self.store.owner))
        facts = (self.store.token, self.store.until, self.now, self.token)
        # Which of them is which does not matter.
        return facts, self.faults, self.passed, tuple(sorted(clients))


@dataclass(frozen=True)
class Way:
    """A state, by the choices that lead there."""

    key: Hashable
    choices: tuple[Choice, ...] = field(compare=False)


class Model:
    """All ways of some clients on a store."""

    def __init__(
        self,
        clients: int,
        faults: int,
        *,
        passes: bool = True,
        store: Callable[[], Store] = Store,
    ) -> None:
        self._start = partial(World, clients=clients, faults=faults, passes=passes)
        self._store = store

    def world(self, choices: tuple[Choice, ...]) -> World:
        """Return what has come of them."""
        world = self._start(self._store())
        for choice in choices:
            world.take(choice)
        return world

    def events(self, way: Way) -> Iterator[tuple[str, Way]]:
        """Return what can be next."""
        for choice in list(self.world(way.choices).choices()):
            choices = (*way.choices, choice)
            yield f"{choice[0]} {choice[1]}", Way(self.world(choices).key(), choices)

    def search(self) -> Found[Way]:
        """Visit all states."""

        def judge(way: Way, is_end: bool) -> str:
            return self.world(way.choices).judge(is_end)

        return search(Way(self.world(()).key(), ()), self.events, judge)


@pytest.mark.parametrize(("clients", "faults"), [(1, 2), (2, 1), (3, 0)])
def test_nothing_is_wrong(clients: int, faults: int) -> None:
    """One is sure that it holds the lock, tokens rise, and nothing is left of who has gone."""
    found = Model(clients, faults).search()
    assert (found.wrong, found.path) == ("", ())
    assert found.ends > 100


@pytest.mark.parametrize(
    ("store", "said"),
    [(partial(Store, rises=0), "token 0 after 0"), (partial(Store, said=3 * TTL), "2 hold it")],
)
def test_a_store_that_breaks_its_word_is_found(store: Callable[[], Store], said: str) -> None:
    found = Model(2, 1, store=store).search()
    assert found.wrong == said
    assert 0 < len(found.path) < 12


def _forget(*_: object) -> Flow[bool]:
    """Withdraw nothing."""
    yield from ()
    return True


def test_a_flow_that_does_not_withdraw_is_found() -> None:
    with mock.patch.object(flow, "_withdraw", _forget):
        found = Model(1, 1, passes=False).search()
    assert found.wrong == "it is held by one that has gone"
    assert found.path == ("0 begins", "0 Ctrl-C after")


def test_what_is_not_abandoned_is_found() -> None:
    """The background is where a grant ends whose answer was lost."""
    with mock.patch.object(World, "choices", _without_background):
        found = Model(1, 1, passes=False).search()
    assert found.wrong == "it is held by one that has gone"
    assert found.path == ("0 begins", "0 an error after")


_choices = World.choices


def _without_background(world: World) -> Iterator[Choice]:
    return (choice for choice in _choices(world) if choice[1] != "background")
