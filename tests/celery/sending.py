"""Sending tasks to a pool."""

from __future__ import annotations

from typing import Any

__all__ = ["LIMIT", "send"]

LIMIT = 30
"""Seconds; longer than a task waits for the board, so that its own error is the first."""


def send(task: Any, tag: str, queue: str = "prefork", **options: Any) -> Any:
    """Send a task to the worker of a pool."""
    return task.apply_async((tag,), queue=queue, **options)
