"""What threads share survives an exception that a signal handler raises at any moment."""

from __future__ import annotations

import ast
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from django_distlock.core import threads
from django_distlock.core.threads import Event, Mutex, Permit, Permits
from django_distlock.core.worker import Worker

from .tools import LIMIT

PACKAGE = Path(threads.__file__).parents[1]
INTERRUPTIONS = 3_000

# An interruption of what the collector calls (hypothesis' callback) is reported, not raised.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interruption(BaseException):
    """What the signal's handler raises, as that of Ctrl-C."""


class SoftTimeLimit(Exception):
    """What it raises for Celery."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interruption


@contextmanager
def interruptions() -> Iterator[None]:
    """Have SIGALRM raise; without a tracer, whose mutex it would leave locked."""
    tracer, before = sys.gettrace(), signal.signal(signal.SIGALRM, _interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def interrupt(work: Callable[[], object], many: int = INTERRUPTIONS) -> None:
    """Interrupt ``work``, done again and again, at random moments."""
    chance = random.Random(1)
    with interruptions():
        for _ in range(many):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 1e-4), 0.5)
                while True:
                    work()
            except Interruption:
                pass
            while True:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    break
                except Interruption:
                    continue


def elsewhere(work: Callable[[], object]) -> bool:
    """Tell whether ``work`` comes to its end on another thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return not thread.is_alive()


def test_an_event_is_a_flag_to_wait_for() -> None:
    event = Event()
    assert not event.wait(0.01)
    assert not event.wait(-1.0)
    event.set()
    assert event.is_set()
    assert event.wait()
    event.clear()
    assert not event.is_set()


def test_all_who_wait_for_an_event_are_woken() -> None:
    event = Event()
    waiters = [threading.Thread(target=event.wait) for _ in range(8)]
    for each in waiters:
        each.start()
    time.sleep(0.05)
    event.set()
    for each in waiters:
        each.join(LIMIT)
        assert not each.is_alive()
    assert not event._waiters


def test_an_event_survives_interruptions() -> None:
    event = Event()

    def work() -> None:
        event.set()
        event.wait(1.0)
        event.clear()
        event.wait(1e-6)

    interrupt(work)
    assert elsewhere(event.set)
    assert elsewhere(event.wait)
    assert not event._waiters


def test_there_are_as_many_permits_as_were_asked_for() -> None:
    permits = Permits(2)
    first, second = permits.take(), permits.take()
    assert first is not None
    assert second is not None
    assert permits.take() is None
    permits.release(first)
    permits.release(first)
    third = permits.take()
    assert third is not None
    assert permits.take() is None


def test_a_permit_that_was_dropped_is_free() -> None:
    permits = Permits(1)
    permit: Permit | None = permits.take()
    assert permit is not None
    del permit
    assert permits.take() is not None


def test_a_mutex_survives_interruptions() -> None:
    mutex, inside = Mutex(), 0

    def work() -> None:
        nonlocal inside
        with mutex:
            with mutex:
                inside += 1
            inside -= 1

    def enter() -> None:
        with mutex:
            pass

    interrupt(work)
    assert elsewhere(enter)


def test_permits_survive_interruptions() -> None:
    permits = Permits(1)

    def work() -> None:
        permit = permits.take()
        assert permit is not None
        permits.release(permit)

    interrupt(work)
    assert elsewhere(permits.take)
    assert permits.take() is not None


def test_a_worker_survives_interruptions() -> None:
    worker = Worker("interrupted")

    def work() -> None:
        worker.submit(lambda: None)
        worker.is_idle()

    interrupt(work)
    done = threading.Event()
    assert elsewhere(lambda: worker.submit(done.set))
    assert done.wait(LIMIT)
    worker.close()


@pytest.mark.parametrize("kind", [Interruption, SoftTimeLimit])
def test_an_interruption_while_a_thread_begins_is_raised_as_it_is(
    kind: type[BaseException],
) -> None:
    class Begun(threading.Thread):
        def start(self) -> None:
            try:
                raise kind
            finally:
                threading.Lock().release()  # as Python's Condition may

    class Noted(threading.Thread):
        def start(self) -> None:
            try:
                raise kind
            finally:
                del threading._limbo[self]  # type: ignore[attr-defined] # as Python's start() does

    for begun in (Begun(), Noted()):
        with pytest.raises(kind):
            threads.start(begun)
        with pytest.raises(kind):
            _start_while_an_error_is_handled(begun)
    thread = threading.Thread()
    thread.start()
    with pytest.raises(RuntimeError, match="once"):
        threads.start(thread)
    with pytest.raises(RuntimeError, match="once"):
        _start_while_an_error_is_handled(thread)


def _start_while_an_error_is_handled(thread: threading.Thread) -> None:
    try:
        raise Interruption
    except Interruption:
        threads.start(thread)


def test_an_interruption_while_a_thread_begins_lets_other_threads_begin() -> None:
    class Begun(threading.Thread):
        def start(self) -> None:
            threading._active_limbo_lock.acquire()  # type: ignore[attr-defined]
            raise Interruption  # where Python 3.14 lets it in

    with pytest.raises(Interruption):
        threads.start(Begun())
    assert elsewhere(list)


def test_nothing_that_an_interruption_can_leave_locked_is_used() -> None:
    """No Event or Semaphore of Python's, no Condition that is entered itself, no other mutex."""
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE)
        if where.parts[0] in ("testing", "management"):  # processes and programs of their own
            continue
        tree = ast.parse(path.read_text())
        conditions = {
            ast.unparse(node.targets[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and ast.unparse(node.value).startswith("threading.Condition(")
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                "threading.Event",
                "threading.Semaphore",
                "threading.BoundedSemaphore",
                "threading.Barrier",
                *(() if where.as_posix() == "core/threads.py" else ("threading.RLock",)),
            ):
                wrong.append(f"{where}:{node.lineno}")
            elif isinstance(node, ast.With):
                entered = {ast.unparse(item.context_expr) for item in node.items}
                wrong += [f"{where}:{node.lineno}"] if entered & conditions else []
    assert wrong == []
