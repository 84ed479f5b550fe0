"""Driving a flow of acquiring by hand: each step is answered by the test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

from django_distlock.core import flow
from django_distlock.core.flow import MIN_ATTEMPT_TIMEOUT, Attempt, Call, Granted, Pause, drift
from django_distlock.core.values import Claim, Grant, Refusal

from .tools import VirtualClock

__all__ = ["CLAIM", "TTL", "ByHand", "NoStore"]

TTL = 10.0
CLAIM = Claim("n", "k", "me", TTL)


@dataclass
class NoStore:
    """What the flow asks of a store, without one: the test answers instead."""

    queues: bool = False
    command_timeout: float = 5.0
    queue_limit: float = 1.0
    min_attempt_timeout: float = MIN_ATTEMPT_TIMEOUT
    alias: str = "test"
    never_blocks: bool = False
    clock: VirtualClock = field(default_factory=VirtualClock)

    def is_contended(self, claim: Claim) -> bool:
        return False

    def is_queued(self, claim: Claim) -> bool:
        return self.queues

    def call(self, verb: str, *args: Any, name: str | None) -> Any:
        raise AssertionError("no driver runs in this test")

    async def acall(self, verb: str, *args: Any, name: str | None, to_the_end: bool = True) -> Any:
        raise AssertionError("no driver runs in this test")


class ByHand:
    """A flow of acquiring, stopped at a step; `answer` and `fail` carry it to the next.

    With ``ahead`` the first attempt is made before the flow begins, as it is in most cases.
    """

    ahead: ClassVar[bool] = False

    def __init__(
        self,
        *,
        wait: float | None = 1.0,
        queues: bool = False,
        delays: Iterator[float] | None = None,
        command_timeout: float = 5.0,
    ) -> None:
        self.clock = VirtualClock()
        self.began = self.clock()
        self.store = NoStore(queues, command_timeout)
        self.abandoned: list[Claim] = []
        self.steps: list[Call] = []
        self.result: Granted | Refusal | None = None
        self.error: BaseException | None = None
        self._begin = partial(
            flow.acquire,
            self.store,
            CLAIM,
            until=None if wait is None else self.began + wait,
            clock=self.clock,
            delays=repeat(0.02) if delays is None else delays,
            abandon=self.abandoned.append,
        )
        self.flow: flow.Flow[Granted | Refusal] | None = None
        if self.ahead:
            limit = flow.patience(self.store, wait)
            self.steps.append(Call(self.store, "try_acquire", (CLAIM, limit), "n"))
        else:
            self.flow = self._begin()
            self._go(None, None)

    @property
    def over(self) -> bool:
        """Whether the flow has ended, by a result or an error."""
        return self.result is not None or self.error is not None

    @property
    def step(self) -> Call:
        """The step at which the flow stands."""
        assert not self.over, f"the flow ended: {self.result!r} {self.error!r}"
        return self.steps[-1]

    @property
    def verbs(self) -> list[str]:
        """The primitives asked for so far."""
        return [step.verb for step in self.steps]

    def answer(self, value: Any = None, *, took: float = 0.0) -> ByHand:
        """Answer the step, ``took`` seconds after it was asked."""
        assert not self.over
        self.clock.advance(took)
        return self._go(value, None)

    def fail(self, error: BaseException, *, took: float = 0.0) -> ByHand:
        """Have the step raise, ``took`` seconds after it was asked."""
        assert not self.over
        self.clock.advance(took)
        return self._go(None, error)

    def close(self) -> None:
        """Drive the flow no more."""
        if self.flow is None:  # closed while it awaited the first attempt
            self.fail(GeneratorExit())
        else:
            self.flow.close()

    def grant(self, token: int = 1, *, ttl: float = TTL, took: float = 0.0) -> ByHand:
        """Have the store grant."""
        return self.answer(Grant(token, ttl), took=took)

    def refuse(self, remaining: float | None = None, *, took: float = 0.0) -> ByHand:
        """Have the store refuse."""
        return self.answer(Refusal(remaining, "note"), took=took)

    def sleep(self, seconds: float | None = None) -> ByHand:
        """Carry out a pause, in full or for less."""
        assert isinstance(self.step, Pause)
        return self.answer(took=self.step.args[1] if seconds is None else seconds)

    def expect(self, verb: str) -> ByHand:
        """Assert at which step the flow stands."""
        assert self.step.verb == verb
        assert self.step.args[0] is CLAIM
        assert self.step.name == "n"
        return self

    def _go(self, value: Any, error: BaseException | None) -> ByHand:
        if self.flow is None:
            self.flow = self._begin(first=Attempt(self.began, value, error))
            value = error = None
        try:
            step = self.flow.throw(error) if error is not None else self.flow.send(value)
        except StopIteration as stop:
            self.result = stop.value
        except BaseException as raised:
            self.error = raised
        else:
            assert isinstance(step, Call)
            self.steps.append(step)
        return self

    def deadline(self, asked: float, ttl: float = TTL) -> float:
        """Return the local deadline of a grant that was asked for at ``asked``."""
        return asked + ttl - drift(ttl)
