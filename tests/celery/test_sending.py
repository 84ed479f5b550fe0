"""Queue-once where a task is sent: duplicates, crossing releases, times; no worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Task

from django_distlock import LockNotAcquiredError
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.contrib.celery import locked_task
from tests.unit.tools import Gate, UnitBackend, claim_of, opened

NAME = "job"


@pytest.fixture
def backend() -> Iterator[UnitBackend]:
    """A store in memory of the test's own, under an alias of its own."""
    with opened() as backend:
        yield backend


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app with a broker in memory."""
    made = Celery("sending", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield made
    made.close()


def once(app: Celery, backend: UnitBackend, **options: Any) -> Any:
    """Return a task of which one is in the queue at a time."""
    given: dict[str, Any] = {"using": backend.alias, "app": app, "once": True, "name": "task"}
    decorate: Any = locked_task(NAME, **given | options)

    def task() -> str:
        return "done"

    return decorate(task)


def meanwhile(work: Callable[[], object]) -> Gate:
    """Return a gate that stops nobody, and does something first."""

    def only() -> bool:
        work()
        return False

    return Gate(only)


def test_a_duplicate_may_be_refused(app: Celery, backend: UnitBackend) -> None:
    task = once(app, backend, on_duplicate="raise")
    task.delay()
    with pytest.raises(LockNotAcquiredError):
        task.delay()


def test_a_lock_freed_before_it_was_looked_at_is_taken(app: Celery, backend: UnitBackend) -> None:
    task = once(app, backend)
    first = task.delay()
    backend.gates["inspect"] = meanwhile(lambda: backend.drop(NAME))
    second = task.delay()
    assert second.id != first.id
    assert backend.holds(NAME)


def test_a_lock_that_changes_hands_at_each_look(app: Celery, backend: UnitBackend) -> None:
    """Give up after some: there is no task whose result could be returned."""

    def others() -> None:
        LocMemBackend.try_acquire(backend, claim_of(backend, NAME, owner="another"), 0.0)

    backend.gates["try_acquire"] = meanwhile(others)
    backend.gates["inspect"] = meanwhile(lambda: backend.drop(NAME))
    with pytest.raises(LockNotAcquiredError, match="no result"):
        once(app, backend).delay()
    assert backend.count("inspect") == 3


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        (lambda at: {"eta": at}, 3700.0),
        (lambda at: {"eta": at.replace(tzinfo=None)}, 3700.0),
        (lambda at: {"expires": at, "queue": "a"}, 100.0),
        (lambda at: {"expires": at.isoformat(), "countdown": 7200}, 3605.0),
        (lambda at: {"expires": 30}, 35.0),
        (lambda at: {}, 100.0),
    ],
)
def test_a_lock_outlives_its_message(
    app: Celery, backend: UnitBackend, when: Callable[[datetime], dict[str, Any]], seconds: float
) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    once(app, backend, queue_ttl=100).apply_async(**when(at))
    info = backend.inspect(NAME)
    assert info is not None
    assert info.expires_at is not None
    lasts = (info.expires_at - datetime.now(UTC)).total_seconds()
    assert seconds - 60 < lasts <= seconds + 1


def test_a_retry_whose_lock_was_lost_takes_it_anew(
    app: Celery, backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "django_distlock")
    app.conf.update(task_always_eager=True)
    runs: list[bool] = []

    def task(self: Task[Any, Any]) -> str:
        runs.append(backend.holds(NAME))
        if len(runs) == 1:
            backend.drop(NAME)
            raise self.retry(countdown=0, throw=True)
        return "done"

    decorate: Any = locked_task(
        NAME, using=backend.alias, app=app, once=True, bind=True, name="retried"
    )
    assert decorate(task).delay().get() == "done"
    assert runs == [True, True]
    assert "Task retried" in caplog.text
    assert not backend.holds(NAME)
