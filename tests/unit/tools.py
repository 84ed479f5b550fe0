"""What the unit tests share: a clock of their own, a store that fails on demand, and waiting."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, TypeVar

from django_distlock.backends.locmem import LocMemBackend
from django_distlock.conf import AliasConf
from django_distlock.core.hold import Hold
from django_distlock.core.values import Claim, Grant, LockInfo, Refusal
from django_distlock.core.watchdog import Watchdog, worker_of
from django_distlock.core.worker import callbacks, events
from django_distlock.handler import locks
from django_distlock.testing.memory import MemoryBackend

__all__ = [
    "Conflict",
    "Down",
    "Gate",
    "HandWatchdog",
    "UnitBackend",
    "VirtualClock",
    "claim_of",
    "drain",
    "eventually",
    "in_thread",
    "is_in_memory",
    "make_hold",
    "opened",
    "traced",
    "without_gc",
]

T = TypeVar("T")

# Seconds after which a test that waits gives up: before a lock of the default ttl runs out, and
# seems to have been freed. Nothing is measured by it.
LIMIT = 10.0


class Down(Exception):
    """The store failed, in the words of its driver."""


class Conflict(Exception):
    """The store asks for another try, in the words of its driver."""


class VirtualClock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self.now += seconds


class Gate:
    """A point at which calls of the store stop until the test lets them go on."""

    def __init__(self, only: Callable[[], bool] = lambda: True) -> None:
        self.only = only
        self.entered = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        """Wait until the gate is open, if it stands in this thread's way."""
        if self.only():
            self.entered.set()
            assert self.open.wait(LIMIT), "the test never opened the gate"


class UnitBackend(LocMemBackend):
    """The locmem backend, with the failures and delays that a test asks for.

    ``before`` holds errors raised instead of acting, ``after`` errors raised when it is done (the
    lost answer), one a call, by primitive; ``gates`` stop a primitive before it acts.
    """

    store_errors = (Down, Conflict)

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self.before: defaultdict[str, list[BaseException]] = defaultdict(list)
        self.after: defaultdict[str, list[BaseException]] = defaultdict(list)
        self.gates: dict[str, Gate] = {}
        self.calls: list[tuple[str, str]] = []
        self.batches: list[int] = []  # how many claims each `renew_many` had

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, Conflict)

    def _do(self, verb: str, name: str, act: Callable[[], T]) -> T:
        self.calls.append((verb, name))
        if verb in self.gates:
            self.gates[verb].pass_through()
        if self.before[verb]:
            raise self.before[verb].pop(0)
        answer = act()
        if self.after[verb]:
            raise self.after[verb].pop(0)
        return answer

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        act = super().try_acquire
        return self._do("try_acquire", claim.name, lambda: act(claim, limit))

    def renew(self, claim: Claim) -> bool:
        act = super().renew
        return self._do("renew", claim.name, lambda: act(claim))

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        self.batches.append(len(claims))
        return super().renew_many(claims)

    def release(self, claim: Claim) -> bool:
        act = super().release
        return self._do("release", claim.name, lambda: act(claim))

    def inspect(self, name: str) -> LockInfo | None:
        act = super().inspect
        return self._do("inspect", name, lambda: act(name))

    def count(self, verb: str) -> int:
        """Return how often a primitive was called."""
        return sum(1 for called, _ in self.calls if called == verb)

    def holds(self, name: str) -> bool:
        """Tell whether somebody holds ``name``, without counting as a call."""
        return LocMemBackend.inspect(self, name) is not None

    def drop(self, name: str) -> None:
        """Take the lock away behind everybody's back, as a flush of the store does."""
        with self._space.mutex:
            self._space.rows.pop(self.key(name), None)


_numbers = itertools.count(1)


@contextlib.contextmanager
def opened(
    kind: type[UnitBackend] = UnitBackend, *, clock: Callable[[], float] | None = None, **conf: Any
) -> Iterator[UnitBackend]:
    """Open a backend under an alias of its own for the block.

    With a ``clock`` nothing is renewed unless asked for: the program's watchdog has another one,
    by which all would be overdue. `HandWatchdog` has the test's.
    """
    if clock is not None:
        conf.setdefault("renew", False)
    alias = f"unit{next(_numbers)}"
    backend = kind(alias, AliasConf(backend="tests.unit.tools.UnitBackend", **conf))
    if clock is not None:
        backend.clock = clock
    locks[alias] = backend
    try:
        yield backend
    finally:
        for gate in backend.gates.values():
            gate.open.set()
        with contextlib.suppress(KeyError):  # the setting changed and closed it already
            del locks[alias]


class HandWatchdog(Watchdog):
    """A watchdog without a thread: the test tells it the time and has it look."""

    def _look_at(self, hold: Hold, due: float) -> None:
        self._schedule.add(hold, due)

    def look(self) -> list[Hold]:
        """Do what is due now, on this thread; return the holds that were."""
        now = self._now()
        holds = self._schedule.due(now)
        self.tick(holds, now)
        return holds

    @property
    def next_due(self) -> float | None:
        """When it would look next."""
        return self._schedule.next_due()


def claim_of(backend: LocMemBackend, name: str, *, owner: str = "me", ttl: float = 30.0) -> Claim:
    """Return a claim as a Lock would make it."""
    return Claim(name, backend.key(name), owner, ttl)


def make_hold(
    backend: LocMemBackend,
    name: str,
    *,
    ttl: float = 30.0,
    owner: str = "me",
    renewing: bool = True,
    max_hold: float | None = None,
    bound: Any = None,
) -> Hold:
    """Take ``name`` in the store and return the hold of this thread or task on it."""
    claim = claim_of(backend, name, owner=owner, ttl=ttl)
    now = backend.clock()
    grant = backend.try_acquire(claim, 1.0)
    assert isinstance(grant, Grant)
    granted = Grant(grant.fencing_token, ttl, bound)
    return Hold(
        backend,
        claim,
        granted,
        deadline=now + ttl,
        acquired=now,
        renewing=renewing,
        max_hold=max_hold,
    )


def in_thread(function: Callable[[], T]) -> T:
    """Return what ``function`` returns when run on a thread of its own that has ended."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the thread hangs"
    if errors:
        raise errors[0]
    return results[0]


def is_in_memory(alias: str = "default") -> bool:
    """Tell whether the backend of the test kit stands in for an alias."""
    return isinstance(locks[alias], MemoryBackend)


def eventually(condition: Callable[[], object], limit: float = LIMIT) -> bool:
    """Wait until a condition holds; return whether it did."""
    end = time.monotonic() + limit
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return bool(condition())


def drain(*backends: LocMemBackend) -> None:
    """Wait until the workers of the backends, and then the events, have done what is due now."""
    for worker in (*map(worker_of, backends), events):
        done = threading.Event()
        worker.submit(done.set)
        assert done.wait(LIMIT), "a worker hangs"
    assert eventually(callbacks.is_idle), "a callback hangs"


@contextlib.contextmanager
def traced(trace: Callable[[FrameType, str, Any], Any], *, opcodes: bool = True) -> Iterator[None]:
    """Have ``trace`` called at each step of this thread's, as a debugger does; or at each line."""
    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = opcodes  # Python 3.12 asks whether any has it only now
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Leave the freeing of objects to reference counts: a cycle then stays for ever."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
