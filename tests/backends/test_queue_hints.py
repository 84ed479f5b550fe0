"""What a process remembers of wait queues is bounded, and is a hint: waiters do without."""

from __future__ import annotations

import asyncio
import time

import pytest

from django_distlock import lock
from django_distlock.backends.table import wait_queue
from tests.backends.tools import LIMIT, elsewhere, lock_alias
from tests.backends.wait_queues import eventually, left, taken, taken_elsewhere, wait_queues, waiter


async def granted(name: str, alias: str) -> None:
    """Wait for a lock in a task, and free it."""
    async with lock(name, using=alias, wait=LIMIT):
        pass


def test_a_name_is_busy_only_for_a_while(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_queue, "BUSY_FOR", 0.05)
    key = taken(name, alias)._hold.claim.key
    wait_queues(alias).refused(key)
    assert wait_queues(alias).is_busy(key)
    time.sleep(0.1)
    assert not wait_queues(alias).is_busy(key)
    assert key not in wait_queues(alias)._busy


def test_more_busy_names_than_are_remembered(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_queue, "MOST_NAMES", 2)
    for number in range(4):
        lease = taken_elsewhere(f"{name}:{number}", alias)
        thread = waiter(f"{name}:{number}", alias)
        lease.release()
        thread.result()
        assert len(wait_queues(alias)._busy) <= 2
        assert len(wait_queues(alias)._freed) <= 2
    eventually(lambda: left(alias))


def test_tasks_poll_while_the_server_has_no_wait_queue(alias: str, name: str) -> None:
    """As after an error at the queue connection."""
    lease = taken_elsewhere(name, alias)
    wait_queues(alias)._closed_until = wait_queues(alias)._clock() + 60

    async def main() -> None:
        waiting = asyncio.create_task(granted(name, alias))
        await asyncio.sleep(0.15)
        assert not waiting.done()
        assert not wait_queues(alias)._entries
        await asyncio.to_thread(elsewhere, lease.release)
        await waiting

    asyncio.run(main())


def test_tasks_for_whom_there_is_no_queue_connection_poll(store: str, name: str) -> None:
    with lock_alias("one-connection", LOCATION=store, OPTIONS={"QUEUE_CONNECTIONS": 1}) as alias:
        leases = [taken_elsewhere(f"{name}:{number}", alias) for number in range(3)]

        async def main() -> None:
            waiting = [
                asyncio.create_task(granted(f"{name}:{number}", alias)) for number in range(3)
            ]
            await asyncio.sleep(0.2)
            assert not any(each.done() for each in waiting)
            for lease in leases:
                await asyncio.to_thread(elsewhere, lease.release)
            await asyncio.gather(*waiting)

        asyncio.run(main())
        eventually(lambda: left(alias))
