"""Any number of flows at one lock, in any order, with answers that are lost, late or repeated.

The lock is a value and the clock stands still until a rule moves it, so that hypothesis can try
every order of steps. What has to hold is said once, in the invariants.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from django_distlock.core import flow
from django_distlock.core.flow import Call, Granted, Pause
from django_distlock.core.values import Claim, Grant, Refusal
from django_distlock.exceptions import LockBackendError

from .steps import NoStore
from .tools import VirtualClock

TTL = 10.0


@dataclass
class Register:
    """The lock itself, as a store would keep it."""

    clock: VirtualClock
    owner: str = ""
    token: int = 0
    expires: float = 0.0

    def carry_out(self, verb: str, claim: Claim) -> object:
        """Do one call of a flow's, now."""
        held = bool(self.owner) and self.clock() < self.expires
        if verb == "try_acquire":
            if held and self.owner != claim.owner:
                return Refusal(self.expires - self.clock(), queue=True)
            if not held or self.owner != claim.owner:
                self.token += 1
            self.owner, self.expires = claim.owner, self.clock() + claim.ttl
            return Grant(self.token, claim.ttl)
        assert verb in ("release", "withdraw"), verb
        mine = held and self.owner == claim.owner
        if mine:
            self.owner = ""
        return mine


@dataclass
class Asker:
    """One who acquires: its flow, the step at which it stands, and what became of it."""

    claim: Claim
    running: flow.Flow[Granted | Refusal]
    step: flow.Step | None = None
    granted: Granted | None = None
    over: bool = False
    done: object = None  # what the store has said to the step, while that is on its way
    abandoned: list[Claim] = field(default_factory=list)


class Flows(RuleBasedStateMachine):
    """Askers that begin, are answered and give up; a clock that goes on; calls that come late."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.register = Register(self.clock)
        self.askers: list[Asker] = []
        self.late: list[tuple[str, Claim]] = []
        self.names = itertools.count()

    # -- what is looked for ------------------------------------------------------------------------

    def _standing(self, *, pausing: bool) -> list[Asker]:
        return [
            each
            for each in self.askers
            if each.step is not None and isinstance(each.step, Pause) == pausing
        ]

    def _go_on(self, asker: Asker, answer: object) -> None:
        asker.done = None  # of a step that is over
        try:
            if isinstance(answer, BaseException):
                asker.step = asker.running.throw(answer)
            else:
                asker.step = asker.running.send(answer)
        except StopIteration as stop:
            asker.step, asker.over = None, True
            asker.granted = stop.value if isinstance(stop.value, Granted) else None
            assert asker.granted is None or self.clock() < asker.granted.deadline
        except (LockBackendError, KeyboardInterrupt):
            asker.step, asker.over = None, True

    # -- what may happen ---------------------------------------------------------------------------

    @precondition(lambda self: len(self.askers) < 8)
    @rule(wait=st.one_of(st.none(), st.floats(0, 30)), queues=st.booleans())
    def begin(self, wait: float | None, queues: bool) -> None:
        name = f"owner {next(self.names)}"
        claim = Claim("n", "k", name, TTL)
        abandoned: list[Claim] = []
        running = flow.acquire(
            NoStore(queues),
            claim,
            until=None if wait is None else self.clock() + wait,
            clock=self.clock,
            delays=itertools.repeat(0.1),
            abandon=abandoned.append,
        )
        asker = Asker(claim, running, abandoned=abandoned)
        self.askers.append(asker)
        self._go_on(asker, None)

    @precondition(lambda self: self._standing(pausing=False))
    @rule(data=st.data())
    def the_store_does_it(self, data: st.DataObject) -> None:
        """Carry a call out whose answer takes its time."""
        asker = data.draw(st.sampled_from(self._standing(pausing=False)))
        step = asker.step
        assert isinstance(step, Call)
        asker.done = self.register.carry_out(step.verb, step.args[0])

    @precondition(lambda self: self._standing(pausing=False))
    @rule(data=st.data(), fate=st.sampled_from(["done", "done", "lost", "unsent", "twice", "late"]))
    def answer(self, data: st.DataObject, fate: str) -> None:
        """Carry a call out, or not, or twice, or later; and say so, or say that it failed."""
        asker = data.draw(st.sampled_from(self._standing(pausing=False)))
        step = asker.step
        assert isinstance(step, Call)
        verb, claim = step.verb, step.args[0]
        answer = asker.done
        if answer is not None:
            fate = "lost" if fate == "lost" else "arrived"
        elif fate in ("done", "lost", "twice"):
            answer = self.register.carry_out(verb, claim)
        if fate == "twice":
            answer = self.register.carry_out(verb, claim)
        if fate == "late" and verb != "try_acquire":
            # A release that overtakes nothing of its own owner's: it is the last word on the claim.
            self.late.append((verb, claim))
        lost = answer is None or fate == "lost"
        self._go_on(asker, LockBackendError("lost") if lost else answer)

    @precondition(lambda self: self._standing(pausing=True))
    @rule(data=st.data(), word=st.sampled_from(["none", "hint", "answer", "lost"]))
    def wake(self, data: st.DataObject, word: str) -> None:
        """End a wait; in a queue perhaps by the answer to an attempt, which may be lost."""
        asker = data.draw(st.sampled_from(self._standing(pausing=True)))
        step = asker.step
        assert isinstance(step, Call)
        answer: object = word == "hint"
        if step.verb == "queue" and word in ("answer", "lost"):
            answer = self.register.carry_out("try_acquire", asker.claim)
            if word == "lost":
                answer = LockBackendError("lost")
        self._go_on(asker, answer)

    @precondition(lambda self: any(each.step is not None for each in self.askers))
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        """Let Ctrl-C, or a cancellation, meet it between two steps."""
        standing = [each for each in self.askers if each.step is not None]
        self._go_on(data.draw(st.sampled_from(standing)), KeyboardInterrupt())

    @rule(seconds=st.floats(0.01, 2 * TTL))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.late)
    @rule()
    def what_was_late_comes(self) -> None:
        self.register.carry_out(*self.late.pop(0))

    @precondition(lambda self: any(each.granted for each in self.askers))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        holding = [each for each in self.askers if each.granted is not None]
        asker = data.draw(st.sampled_from(holding))
        asker.granted = None
        self.register.carry_out("release", asker.claim)

    @precondition(lambda self: any(each.abandoned for each in self.askers))
    @rule(data=st.data())
    def the_background_withdraws(self, data: st.DataObject) -> None:
        left = [each for each in self.askers if each.abandoned]
        asker = data.draw(st.sampled_from(left))
        self.register.carry_out("release", asker.abandoned.pop())

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def at_most_one_is_sure(self) -> None:
        sure = [
            each
            for each in self.askers
            if each.granted is not None and self.clock() < each.granted.deadline
        ]
        assert len(sure) <= 1
        for each in sure:
            assert self.register.owner == each.claim.owner
            assert each.granted is not None
            assert each.granted.fencing_token == self.register.token
            assert each.granted.deadline < self.register.expires

    @invariant()
    def who_gave_up_leaves_nothing_that_nobody_will_withdraw(self) -> None:
        for each in self.askers:
            holds = self.register.owner == each.claim.owner and self.clock() < self.register.expires
            if each.over and each.granted is None and holds:
                late = any(claim is each.claim for _, claim in self.late)
                assert each.abandoned or late

    @invariant()
    def nobody_stands_at_nothing(self) -> None:
        for each in self.askers:
            assert each.over == (each.step is None)


Flows.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFlows = Flows.TestCase
