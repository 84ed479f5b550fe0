"""Tasks of Django's own framework, which Django has since 6.0: `@lock` below `@task`."""

from __future__ import annotations

from typing import Any

import pytest

from django_distlock import Lease, lock
from django_distlock.testing import hold_elsewhere

tasks: Any = pytest.importorskip("django.tasks", reason="of Django 6.0")


@lock("report:{tenant}", wait=0, on_contention="skip", default="skipped")
def report(tenant: str) -> str:
    return tenant


@lock("attempt:{context.attempt}", wait=0)
def counted(context: Any, lease: Lease) -> str:
    lease.check()
    return lease.name


@lock("areport:{tenant}", wait=0, on_contention="skip", default="skipped")
async def areport(tenant: str) -> str:
    return tenant


def sent(task: Any, **arguments: str) -> Any:
    """Return the result of a task, which the default backend runs at once."""
    result = task.enqueue(**arguments)
    assert not result.errors, result.errors[0].traceback
    return result.return_value


@pytest.mark.parametrize("function", [report, areport], ids=["sync", "async"])
def test_a_task_is_skipped_while_its_lock_is_held(function: Any) -> None:
    task = tasks.task(function)
    name = f"{function.__name__}:acme"
    assert sent(task, tenant="acme") == "acme"
    with hold_elsewhere(name):
        assert sent(task, tenant="acme") == "skipped"
    assert not lock(name).locked()


def test_the_context_names_the_lock_and_the_lease_is_not_sent() -> None:
    assert sent(tasks.task(takes_context=True)(counted)) == "attempt:1"
