"""Tasks under locks, one set for each alias; what they do is told to the board."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from celery.app.task import Task
from django.conf import settings

from django_distlock import LockNotAcquiredError, current_lease
from django_distlock.contrib.celery import locked_task
from tests.celery.app import app
from tests.celery.board import LIMIT, OPEN, Board

ALIASES: list[str] = [
    alias for alias in ("sqlite", "postgresql", "mariadb", "redis") if alias in settings.DISTLOCKS
]
TTL = 6.0
"""Seconds; many workers start while tasks hold their locks, on busy machines too."""
MIN_HOLD = 1.2
"""Seconds; shorter than the period of the beats, longer than what their clocks differ."""
Decorator = Callable[[Callable[..., Any]], Any]


def held_up(tag: str, limit: float = LIMIT) -> str:
    """Say that the task is there, wait until it may go on, and say that it ends."""
    board = Board()
    board.say(tag, "begin")
    board.pass_gate(tag, limit)
    current_lease().check()
    board.say(tag, "end")
    return f"done by {os.getpid()}"


def left_out(error: Exception, tag: str, host: str) -> None:
    """Say that another host's beat was first."""
    Board().say(f"{tag}-skipped", host)


def instead(error: Exception, task: Task[Any, Any], tag: str) -> str:
    """Be called in place of a task."""
    return f"instead of {task.name} for {tag}"


class Tasks:
    """The tasks of one alias."""

    def __init__(self, using: str) -> None:
        def task(name: str, **options: Any) -> Decorator:
            given: dict[str, Any] = {"using": using, "ttl": TTL, "app": app} | options
            made: Decorator = locked_task(f"{name}:{{tag}}", name=f"{using}.{name}", **given)
            return made

        @task("raise", on_contention="raise")
        def raises(tag: str) -> str:
            return held_up(tag)

        @task("renewed", on_contention="raise", ttl=3)
        def renewed(tag: str) -> str:
            return held_up(tag)

        @task("skip", on_contention="skip", default="skipped")
        def skips(tag: str) -> str:
            return held_up(tag)

        @task("wait", on_contention="wait", wait=15)
        def waits(tag: str) -> str:
            return held_up(tag)

        @task("retry", on_contention="retry")
        def retries(tag: str) -> str:
            return held_up(tag)

        @task("retry once", on_contention="retry", contention_retries=1)
        def retries_once(tag: str) -> str:
            return held_up(tag)

        @task("callable", on_contention=instead, bind=True)
        def calls(self: Task[Any, Any], tag: str) -> str:
            return held_up(tag)

        @task("held", min_hold=4, on_contention="skip", default="skipped")
        def holds(tag: str, fail: bool = False) -> str:
            if fail:
                raise OSError("it failed")
            return "done"

        @task("beaten", min_hold=MIN_HOLD, on_contention=left_out)
        def beaten(tag: str, host: str) -> None:
            Board().say(tag, f"{current_lease().fencing_token} {host}")

        @task(
            "reported",
            autoretry_for=(LockNotAcquiredError, OSError),
            max_retries=50,
            retry_kwargs={"countdown": 0.1},
        )
        def autoretried(tag: str) -> str:
            board = Board()
            board.say(tag, "begin")
            board.pass_gate(tag)
            if board.said(tag).count("begin") == 1:
                raise OSError("it failed")
            return "done"

        @task("once", once=True)
        def once(tag: str) -> str:
            return held_up(tag)

        @task("queued", once="queued")
        def queued(tag: str) -> str:
            board = Board()
            board.say(tag, "begin")
            board.pass_gate(tag)
            return "done"

        @task("long", once=True, ttl=30)
        def long(tag: str) -> str:
            return held_up(tag)

        @task("late", once=True, acks_late=True, on_contention="skip", ttl=10)
        def late(tag: str) -> str:
            return held_up(tag, OPEN)

        @task("late plain", acks_late=True, on_contention="retry", ttl=10)
        def late_plain(tag: str) -> str:
            return held_up(tag, OPEN)

        @task("retried", once=True, autoretry_for=(OSError,), retry_kwargs={"countdown": 1})
        def retried(tag: str) -> str:
            board = Board()
            board.say(tag, "begin")
            board.pass_gate(tag)
            if board.said(tag).count("begin") == 1:
                raise OSError("it failed")
            return "done"

        @task("soft", once=True, soft_time_limit=1)
        def soft(tag: str) -> str:
            return held_up(tag)

        @task("hard", once=True, time_limit=1, ttl=30)
        def hard(tag: str) -> str:
            return held_up(tag)

        @task("counted", once=True)
        def counted(tag: str, number: int) -> int:
            Board().say(tag, "run")
            return number

        @task("fails", once=True)
        def fails(tag: str) -> None:
            raise OSError("it failed")

        @task("soft plain", soft_time_limit=1, ttl=30)
        def soft_plain(tag: str) -> str:
            return held_up(tag)

        self.beaten, self.soft_plain, self.renewed = beaten, soft_plain, renewed
        self.holds, self.autoretried, self.once, self.late = holds, autoretried, once, late
        self.late_plain, self.retried, self.soft, self.hard = late_plain, retried, soft, hard
        self.counted, self.fails, self.long = counted, fails, long
        self.queued = queued
        self.raises, self.skips, self.waits, self.retries = raises, skips, waits, retries
        self.retries_once, self.calls = retries_once, calls


@app.task(name="total")
def total(numbers: list[int], tag: str) -> int:
    """Add the results of a chord."""
    Board().say(tag, "total")
    return sum(numbers)


TASKS: dict[str, Tasks] = {using: Tasks(using) for using in ALIASES}
