"""The actors of the contract suite fail when they have to, and end in any case."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from django_distlock import lock
from django_distlock.testing import runners
from django_distlock.testing.runners import (
    RUNNERS,
    AsyncRunner,
    Runner,
    TaskActor,
    ThreadActor,
    until,
)

kinds = pytest.mark.parametrize("kind", RUNNERS)


def test_a_condition_that_never_holds_is_a_failure() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.05 s; last answer: False"):
        asyncio.run(until(lambda: False, 0.05))


@kinds
def test_what_is_held_is_not_taken(kind: str, name: str) -> None:
    async def main() -> None:
        async with RUNNERS[kind]("locmem") as runner:
            first, second = runner.actor(), runner.actor()
            lease = await first.take(lock(name, using="locmem"))
            with pytest.raises(AssertionError, match="was not obtained"):
                await second.take(lock(name, using="locmem"))
            await first.release(lease)

    asyncio.run(main())


@kinds
def test_an_error_is_that_of_who_asked(kind: str) -> None:
    async def main() -> None:
        async with RUNNERS[kind]("locmem") as runner:
            actor = runner.actor()

            def fail() -> None:
                raise LookupError

            with pytest.raises(LookupError):
                await actor.do(fail)
            assert await actor.do(lambda: 7) == 7

    asyncio.run(main())


@kinds
def test_an_answer_that_nobody_waits_for_any_more(kind: str) -> None:
    """The actor goes on, and does what is asked next."""

    async def main() -> None:
        async with RUNNERS[kind]("locmem") as runner:
            actor = runner.actor()
            go_on = threading.Event()
            if kind == "sync":
                asking = asyncio.create_task(actor.do(lambda: go_on.wait(10)))
            else:
                assert isinstance(actor, TaskActor)
                asking = asyncio.create_task(actor.run(lambda: asyncio.to_thread(go_on.wait, 10)))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            go_on.set()
            assert await actor.do(lambda: "next") == "next"

    asyncio.run(main())


class Stuck:
    """An actor that is in the middle of something, until the test lets it go on."""

    def __init__(self, runner: Runner) -> None:
        self._go_on = threading.Event()
        actor = runner.actor()
        self._thread = actor._thread if isinstance(actor, ThreadActor) else None
        stands: Any = asyncio.sleep if isinstance(actor, TaskActor) else self._go_on.wait
        self.asking = asyncio.create_task(actor._do(lambda: stands(60), lambda: stands(60)))

    async def end(self) -> None:
        self._go_on.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 10)
        self.asking.cancel()


@kinds
@pytest.mark.parametrize("error", [None, LookupError()])
def test_an_actor_that_does_not_end_is_a_failure(
    kind: str, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the test has failed: its own error says more."""
    monkeypatch.setattr(runners, "PATIENCE", 0.05)
    stuck: list[Stuck] = []

    async def test() -> None:
        async with RUNNERS[kind]("locmem") as runner:
            stuck.append(Stuck(runner))
            await asyncio.sleep(0.01)
            if error is not None:
                raise error

    async def main() -> None:
        with pytest.raises(LookupError if error else AssertionError):
            await test()
        await stuck[0].end()

    asyncio.run(main())


def test_only_who_does_something_can_be_cancelled() -> None:
    async def main() -> None:
        async with AsyncRunner("locmem") as runner:
            actor = runner.actor()
            with pytest.raises(AssertionError, match="does nothing"):
                actor.cancel()
            asking = asyncio.create_task(actor.run(lambda: asyncio.sleep(60)))
            began = time.monotonic()
            while not actor.busy:
                await asyncio.sleep(0.001)
            actor.cancel()
            with pytest.raises(runners.Cancelled):
                await asking
            assert time.monotonic() - began < 30

    asyncio.run(main())
