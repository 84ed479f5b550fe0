"""The five independent Redis servers of this run, and the aliases whose locks they keep."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.servers import Redis, chosen

__all__ = ["NODES", "aliases", "start", "stop"]

NODES: list[Redis] = []
"""The servers of this process, if redis was chosen."""

VARIABLE = "DISTLOCK_TEST_REDLOCK"


def start() -> None:
    """Start the servers, and tell the processes that the tests start where they are."""
    os.environ.pop(VARIABLE, None)
    if "redis" in chosen():
        NODES.extend(Redis() for _ in range(5))
        for node in NODES:
            node.start()
        os.environ[VARIABLE] = json.dumps([node.url() for node in NODES])


def stop() -> None:
    """End the servers."""
    for node in NODES:
        node.stop()
    NODES.clear()


def aliases() -> dict[str, dict[str, Any]]:
    """Return the aliases: by all five, and by three of them."""
    urls = json.loads(os.environ.get(VARIABLE, "[]"))
    if not urls:
        return {}
    redlock = {"BACKEND": "django_distlock.backends.redlock.RedlockBackend"}
    return {
        "redlock": redlock | {"LOCATION": urls},
        "redlock-3": redlock | {"LOCATION": urls[:3], "PREFIX": "three"},
    }
