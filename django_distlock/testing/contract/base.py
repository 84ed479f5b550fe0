"""What the parts of the contract suite share: fixtures, hooks, and which tests apply."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import secrets
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

import pytest

from ...backends.base import BaseLockBackend
from ...core.flow import Flow, Step
from ...core.values import Claim
from ...handler import locks
from ...lease import Lease
from ...lock import Lock, lock
from ..processes import Process
from ..runners import RUNNERS, Actor, AsyncRunner, Runner, SyncRunner, eventually, until

__all__ = ["ContractBase", "applies_to_all", "lacks", "needs", "only"]

F = TypeVar("F", bound=Callable[..., Any])


def needs(*flags: str, exclusive: bool = True) -> Callable[[F], F]:
    """Let a test apply to backends only that have all of these flags or hooks.

    And that exclude at all, unless ``exclusive`` is False.
    """

    def mark(test: F) -> F:
        cast("Any", test).needs = ("exclusive", *flags) if exclusive else flags
        return test

    return mark


def lacks(flag: str) -> Callable[[F], F]:
    """Let a test apply to backends only that do not have this flag."""

    def mark(test: F) -> F:
        cast("Any", test).needs = () if flag == "exclusive" else ("exclusive",)
        cast("Any", test).lacks = flag
        return test

    return mark


def applies_to_all(test: F) -> F:
    """Let a test apply to every backend, also to one that excludes nothing."""
    return needs(exclusive=False)(test)


def only(step: Step) -> Flow[object]:
    """Return a flow of one step."""
    return (yield step)


def _driven(body: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a plain test that runs ``body`` on an event loop, in the mode of its fixtures."""

    @functools.wraps(body)
    def test(self: ContractBase, **fixtures: Any) -> None:
        runner = next(each for each in fixtures.values() if isinstance(each, Runner))
        with asyncio.Runner(loop_factory=type(self).loop_factory) as loop:
            loop.run(self._play(runner, lambda: body(self, **fixtures)))

    return test


def _doing(thread: threading.Thread) -> str:
    """Return a thread's name and where it is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{thread.name} lives:\n" + "".join(traceback.format_stack(frame) if frame else ())


class ContractBase:
    """The parts of the suite derive from this, and with them the class that a user writes.

    ``alias`` is the alias of DISTLOCKS to test. The other attributes and methods down to `backend`
    say what is different about a store or a machine.
    """

    alias: ClassVar[str] = ""
    short: ClassVar[float] = 0.2
    """Seconds; the ttl of leases that are meant to run out."""
    least: ClassVar[float] = 0.01
    """Seconds; the shortest ttl with which the store can grant a lock at all, on a busy machine."""
    brief: ClassVar[float] = 0.5
    """Seconds; the ttl of leases that are renewed, and run out soon when it is not done."""
    kept: ClassVar[float] = 1.8
    """Seconds; the ttl of leases that renewals must keep: a busy machine stands still for less."""
    settles: ClassVar[float] = 1.0
    """Seconds in addition, in which a store that was stopped carries out what was left to do."""
    handoff: ClassVar[float] = 5.0
    """Seconds in which a waiter gets a lock that is freed, on a busy machine."""
    shown: ClassVar[float] = 0.0
    """Seconds in which other processes see who has taken a lock."""
    round_trip: ClassVar[float] = 3.0
    """Seconds that the store may take for an answer, and the machine stand still."""
    own_processes: ClassVar[bool] = True
    """Whether another process can use the alias; False for a database in memory."""
    store_clock: ClassVar[bool] = True
    """Whether the store has a clock of its own; False where all its users share the host's."""

    numbers_sharers: ClassVar[bool] = True
    """Whether two who come to share a lock at one moment have tokens of their own."""
    loop_factory: ClassVar[Callable[[], asyncio.AbstractEventLoop] | None] = None
    """What makes the event loop, such as ``uvloop.new_event_loop``; None: asyncio does."""

    def restart_store(self) -> None:
        """Stop the store's server and start it again on its data."""
        raise NotImplementedError

    def hang_store(self) -> AbstractContextManager[None]:
        """Keep the store's server from answering, with its connections open."""
        raise NotImplementedError

    def queued(self, waiters: int) -> bool:
        """Return whether so many waiters stand in the store's queue.

        They do when their attempt was answered, but where it is answered as soon as it was sent.
        """
        return True

    def open_connections(self) -> int:
        """Return how many connections this process has open to the store."""
        return 0

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        """Return a backend for the same store as ``self.alias``, with another PREFIX."""
        backend = self.backend()
        return type(backend)(alias, replace(backend.conf, prefix=prefix))

    @classmethod
    def backend(cls) -> BaseLockBackend:
        """Return the backend under test."""
        return locks[cls.alias]

    # -- which tests apply ---------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, body in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(body):
                setattr(cls, name, _driven(body))
        if cls.alias:
            for name in cls.applicable():
                if not cls.applies(getattr(cls, name)):
                    setattr(cls, name, None)  # which pytest does not collect

    @classmethod
    def applicable(cls) -> list[str]:
        """Return the names of the suite's tests, as far as they apply."""
        return [name for name in dir(cls) if name.startswith("test_") and getattr(cls, name)]

    @classmethod
    def applies(cls, test: Callable[..., Any]) -> bool:
        """Return whether the flags of the backend and the hooks of this class let a test apply."""
        wanted = getattr(test, "needs", ("exclusive",))
        unwanted = getattr(test, "lacks", None)
        return all(map(cls.has, wanted)) and not (unwanted and cls.has(unwanted))

    @classmethod
    def has(cls, flag: str) -> bool:
        """Return whether the backend has a flag, or this class offers a hook."""
        if flag == "processes":
            return cls.own_processes and cls.backend().scope != "process"
        if flag in ("restart_store", "hang_store"):
            return getattr(cls, flag) is not getattr(ContractBase, flag)
        if flag in ("own_processes", "store_clock"):
            return bool(getattr(cls, flag))
        return bool(getattr(cls.backend(), flag))

    # -- fixtures ------------------------------------------------------------------------------

    @pytest.fixture(params=sorted(RUNNERS))
    def runner(self, request: pytest.FixtureRequest) -> Runner:
        """Give a test that runs in both modes."""
        return RUNNERS[request.param](self.alias)

    @pytest.fixture
    def threads(self) -> SyncRunner:
        """Give a test that is about threads."""
        return SyncRunner(self.alias)

    @pytest.fixture
    def tasks(self) -> AsyncRunner:
        """Give a test that is about tasks."""
        return AsyncRunner(self.alias)

    @pytest.fixture
    def twins(self) -> Iterator[Callable[[str], BaseLockBackend]]:
        """Give a function that returns another alias for the same store, with another PREFIX."""
        made: list[str] = []

        def make(prefix: str) -> BaseLockBackend:
            made.append(f"{self.alias}-twin{len(made)}")
            locks[made[-1]] = self.twin(made[-1], prefix)
            return locks[made[-1]]

        yield make
        for alias in made:
            del locks[alias]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def closed_at_the_end(cls) -> Iterator[None]:
        """Close the alias after all tests, and see that its threads end."""
        cls.backend()
        yield
        del locks[cls.alias]
        # A client library may give a connection that does not end ten seconds and then wait for its
        # own thread, as kazoo does.
        try:
            asyncio.run(until(lambda: not cls._threads(), within=60.0))
        except AssertionError as error:
            raise AssertionError("\n".join(map(_doing, cls._threads()))) from error

    @classmethod
    def _threads(cls) -> list[threading.Thread]:
        ours = f"distlock-{cls.alias}"
        return [
            thread
            for thread in threading.enumerate()
            if thread.name == ours or thread.name.startswith(f"{ours}_")
        ]

    async def _play(self, runner: Runner, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a test in its mode, and see that it leaves neither locks nor connections."""
        before = self.open_connections()
        async with runner:
            await body()
            # What was left to expire needs its time; nothing else may be there.
            within = self.ends_within(self.short) + self.settles
            looker = runner.actor()

            async def clean() -> bool:
                return not await self.held_names(looker, runner)

            await eventually(clean, within)

        def closed() -> bool:
            if self.open_connections() > before:
                gc.collect()  # of threads that the test left to the collector, once they have ended
            return self.open_connections() <= before

        try:
            await until(closed)
        except AssertionError as error:
            alive = [thread.name for thread in threading.enumerate()]
            left = f"{self.open_connections()} connections, {before} before; threads: {alive}"
            raise AssertionError(left) from error

    # -- what tests are written with -----------------------------------------------------------

    def lock(self, name: str, **options: Any) -> Lock:
        """Return a lock of the alias under test; its ttl outlasts the test unless given."""
        made: Lock = lock(name, using=self.alias, **{"ttl": 20.0, **options})
        return made

    def claim(self, name: str, ttl: float = 20.0, backend: BaseLockBackend | None = None) -> Claim:
        """Return a claim by a new owner, for calling primitives."""
        key = (backend or self.backend()).key(name)
        return Claim(name, key, secrets.token_hex(16), ttl)

    def token(self, lease: Lease) -> int | None:
        """Return the fencing token, None on a backend that has none."""
        return lease.fencing_token if self.has("supports_fencing") else None

    def newer(self, lease: Lease, *, than: Lease) -> None:
        """Fail unless a grant has a greater token than an earlier one, where there are tokens."""
        if self.has("supports_fencing"):
            assert lease.fencing_token > than.fencing_token

    def same(self, told: object, lease: Lease) -> None:
        """Fail unless another process told the token of a lease, where there are tokens."""
        if self.has("supports_fencing"):
            assert told == lease.fencing_token

    def ends_within(self, ttl: float) -> float:
        """Return the seconds after which a lock whose holder crashed is free at the latest."""
        backend = self.backend()
        return backend.max_ttl(ttl) + backend.grace

    def waits_out(self, ttl: float) -> float:
        """Return how long to wait for a lock whose holder crashed, on a busy machine."""
        return self.ends_within(ttl) + self.handoff

    async def held_names(self, actor: Actor, runner: Runner) -> list[str]:
        """Return which locks of a test are held; one by one where the store shows no list."""
        backend = self.backend()
        if backend.shows_holders:
            return sorted([info.name for info in await actor.held(backend, runner.prefix)])
        names = sorted(runner.names)
        return [name for name in names if await actor.call(backend, "inspect", name)]

    async def nobody_holds(self, actor: Actor, name: str, within: float) -> None:
        """Wait until the store shows no holder of ``name``, or fail; the machine may be busy."""

        async def ask() -> bool:
            return await actor.call(self.backend(), "inspect", name) is None

        await eventually(ask, within + self.settles)

    @asynccontextmanager
    async def process(self, runner: Runner) -> AsyncIterator[Process]:
        """Run another process that takes locks in the same mode."""
        async with Process(runner.kind, self.alias) as process:
            yield process
