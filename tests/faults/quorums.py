"""The alias "own" on several Redis servers: its lock, its nodes, and using it in both modes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from django_distlock import Lock, lock, locks
from django_distlock.backends.redlock import RedlockBackend
from tests.backends.tools import elsewhere
from tests.servers import Redis

SOON = 3.0  # seconds for a round while a minority is away; waited for, its steps take one each
NAME = "x"


def own(**options: Any) -> Lock:
    """Return the lock of these tests."""
    made: Lock = lock(NAME, using="own", **{"ttl": 20.0, "wait": 0, **options})
    return made


def backend() -> RedlockBackend:
    """Return the alias's backend."""
    found = locks["own"]
    assert isinstance(found, RedlockBackend)
    return found


def minority(nodes: list[Redis]) -> list[Redis]:
    """Return so many nodes that the others are a quorum still."""
    return nodes[: len(nodes) // 2]


def majority(nodes: list[Redis]) -> list[Redis]:
    """Return so many nodes that the others are none."""
    return nodes[: len(nodes) // 2 + 1]


def key() -> str:
    """Return the key of the lock on a node."""
    return f"distlock:1:redlock:{backend().key(NAME)}"


def jump(node: Redis, seconds: int) -> None:
    """Do to the lock what a jump of the node's clock does.

    Debian's Redis gave no answer under libfaketime. Redis keeps when a key expires by its clock, so
    that a jump ahead is so much off every ttl.
    """
    left = int(node.execute("PTTL", key()))
    assert left > 0
    assert node.execute("PEXPIRE", key(), str(left - 1000 * seconds)) == "1"


def free_soon() -> None:
    """Wait until what a failed attempt was granted is undone in the background."""
    deadline = time.monotonic() + 10
    while own().locked():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def use(times: int = 3) -> list[int]:
    """Take and release the lock; return the tokens."""
    tokens, took = [], []
    for _ in range(times):
        started = time.monotonic()
        with own() as lease:
            tokens.append(lease.fencing_token)
            assert elsewhere(lambda: own().acquire()) is None
            lease.renew()
        took.append(time.monotonic() - started)
    assert min(took) < SOON
    return tokens


async def use_in_a_task(times: int = 3) -> list[int]:
    """Do the same in a task."""
    tokens, took = [], []
    for _ in range(times):
        started = time.monotonic()
        async with own() as lease:
            tokens.append(lease.fencing_token)
            await lease.arenew()
        took.append(time.monotonic() - started)
    assert min(took) < SOON
    return tokens


WAYS: dict[str, Callable[[], list[int]]] = {
    "sync": use,
    "async": lambda: asyncio.run(use_in_a_task()),
}
