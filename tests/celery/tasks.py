"""Tasks under locks, one set for each alias; what they do is told to the board."""

from __future__ import annotations

import os
from typing import Any

from celery.app.task import Task
from django.conf import settings

from django_distlock.contrib.celery import current_lease, locked_task
from tests.celery.app import app
from tests.celery.board import Board

ALIASES = [
    alias for alias in ("sqlite", "postgresql", "mariadb", "redis") if alias in settings.DISTLOCKS
]
TTL = 1.0


def held_up(tag: str) -> str:
    """Say that the task is there, wait until it may go on, and say that it ends."""
    board = Board()
    board.say(tag, "begin")
    board.pass_gate(tag)
    current_lease().check()
    board.say(tag, "end")
    return f"done by {os.getpid()}"


def instead(task: Task[Any, Any], tag: str) -> str:
    """Be called in place of a task."""
    return f"instead of {task.name} for {tag}"


class Tasks:
    """The tasks of one alias."""

    def __init__(self, using: str) -> None:
        def task(name: str, **options: Any) -> Any:
            options = {"using": using, "ttl": TTL, "app": app} | options
            return locked_task(f"{name}:{{tag}}", name=f"{using}.{name}", **options)

        @task("raise", on_contention="raise")
        def raises(tag: str) -> str:
            return held_up(tag)

        @task("skip", on_contention="skip", default="skipped")
        def skips(tag: str) -> str:
            return held_up(tag)

        @task("wait", on_contention="wait", wait=15)
        def waits(tag: str) -> str:
            return held_up(tag)

        @task("retry", on_contention="retry", ttl=0.5)
        def retries(tag: str) -> str:
            return held_up(tag)

        @task("retry once", on_contention="retry", contention_retries=1, ttl=0.5)
        def retries_once(tag: str) -> str:
            return held_up(tag)

        @task("callable", on_contention=instead, bind=True)
        def calls(self: Task[Any, Any], tag: str) -> str:
            return held_up(tag)

        self.raises, self.skips, self.waits, self.retries = raises, skips, waits, retries
        self.retries_once, self.calls = retries_once, calls


TASKS = {using: Tasks(using) for using in ALIASES}
