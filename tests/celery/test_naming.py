"""Locks named after a task and its arguments, and those that are held in the queue alone."""

from __future__ import annotations

from datetime import date
from typing import Any, Self

import pytest
from celery import Celery
from celery.signals import before_task_publish

from django_distlock import InvalidLockError, Lease, LockNotAcquiredError, lock
from django_distlock.contrib.celery import locked_task
from django_distlock.metrics import listen

# -- the name of task and arguments ----------------------------------------------------------------


def names_of(task: Any, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> list[str]:
    """Return the names of the locks that calls take."""
    seen: list[str] = []
    stop = listen(lambda measured: seen.append(measured.name))
    try:
        for args, kwargs in calls:
            task.delay(*args, **kwargs)
    finally:
        stop()
    return seen[::2]  # acquired and released


def test_a_task_without_a_name_is_named_by_its_arguments(app: Celery, name: str) -> None:
    @locked_task(using="locmem", app=app, name=name)
    def task(tenant: str, day: Any = None, *more: int, **others: Any) -> None: ...

    day = date(2026, 1, 2)
    first, second, third, fourth = names_of(
        task, (("a",), {}), (("a", None), {}), (("a", day, 1), {"x": (1, 2)}), (("é" * 300,), {})
    )
    assert first == second == f'{name}:{{"day":null,"more":[],"tenant":"a"}}'
    assert third == f'{name}:{{"day":"2026-01-02","more":[1],"tenant":"a","x":[1,2]}}'
    assert len(fourth) == len(name) + 65
    with pytest.raises(InvalidLockError, match="make no name"):
        task(object())  # type: ignore[arg-type]


def test_a_task_is_unique_on_some_of_its_arguments(app: Celery, name: str) -> None:
    @locked_task(using="locmem", app=app, name=name, unique_on=["tenant"], bind=True)
    def task(self: Any, tenant: str, day: int) -> None: ...

    assert len(set(names_of(task, (("a", 1), {}), (("a",), {"day": 2})))) == 1
    assert len(set(names_of(task, (("a", 1), {}), (("b", 1), {})))) == 2
    for wrong, said in [(["nothing"], "no argument of the task"), ("tenant", "several arguments")]:
        with pytest.raises(InvalidLockError, match=said):
            locked_task(app=app, unique_on=wrong)(lambda tenant: None)


# -- only while it is queued -----------------------------------------------------------------------


class Broker:
    """Holds what was sent, and runs it when it is told to."""

    def __init__(self, **options: Any) -> None:
        self.app = Celery("queue", broker="memory://", set_as_current=False)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        decorate: Any = locked_task("{key}", using="locmem", app=self.app, **options)
        self.task: Any = decorate(self.body)
        self.held: list[bool] = []

    def body(self, key: str) -> str:
        self.held.append(lock(key, using="locmem").locked())
        return "done"

    def _published(self, sender: Any, headers: dict[str, Any], **more: Any) -> None:
        self.sent.append((headers["id"], headers))

    def __enter__(self) -> Self:
        before_task_publish.connect(self._published)
        return self

    def __exit__(self, *error: object) -> None:
        before_task_publish.disconnect(self._published)
        self.app.close()

    def run(self, key: str) -> Any:
        """Run the message that was sent first, as a worker does."""
        task_id, headers = self.sent.pop(0)
        told: dict[str, Any] = {"headers": headers, "delivery_info": {"redelivered": False}}
        self.task.push_request(
            id=task_id, args=(key,), called_directly=False, is_eager=False, **told
        )
        try:
            return self.task.run(key)
        finally:
            self.task.pop_request()


def test_what_is_queued_once_is_queued_again_as_soon_as_it_runs(name: str) -> None:
    with Broker(once="queued") as broker:
        first = broker.task.delay(name)
        assert lock(name, using="locmem").locked()
        assert broker.task.delay(name).id == first.id
        assert broker.run(name) == "done"
        assert broker.held == [False], "it is free when the task begins"
        second = broker.task.delay(name)
        assert second.id != first.id
        assert len(broker.sent) == 1
        assert broker.run(name) == "done"
        assert not lock(name, using="locmem").locked()
        assert broker.task(name) == "done"


def test_a_task_without_its_lock_has_no_lease(app: Celery) -> None:
    with pytest.raises(InvalidLockError, match="no lease"):

        @locked_task("x", app=app, once="queued")
        def task(lease: Lease) -> None: ...


@pytest.mark.parametrize("linked", ["link", "link_error"])
def test_what_is_linked_to_a_duplicate_is_not_dropped(name: str, linked: str) -> None:
    with Broker(once=True) as broker:
        broker.task.apply_async((name,), **{linked: broker.task.si("other")})
        with pytest.raises(LockNotAcquiredError):
            broker.task.apply_async((name,), **{linked: broker.task.si("other")})
        assert len(broker.sent) == 1
        assert broker.task.clear_lock(name) is True
        assert broker.task.clear_lock(key=name) is False
        broker.task.delay(name)
        assert len(broker.sent) == 2
        assert broker.task.clear_lock(name)
