"""How many commands clients send, as the server hears them: those inside of scripts are free."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from django_distlock import Lock, lock
from django_distlock.backends.redis.scripts import SAFETY
from tests.redis.tools import Opener
from tests.servers import Redis

ROUNDS = 10
OPENING = {"HELLO", "CLIENT", "AUTH", "SELECT"}
"""What a connection begins with."""


@contextmanager
def heard(server: Redis) -> Iterator[list[str]]:
    """Lend a list that has, after the block, the commands that clients sent while it ran."""
    found: list[str] = []
    with (
        redis.Redis.from_url(server.url(), decode_responses=True) as client,
        redis.Redis.from_url(server.url(), decode_responses=True) as speaker,
        client.monitor() as monitor,
    ):

        def listen() -> None:
            for said in monitor.listen():
                if said["command"] == "ECHO over":
                    return
                if said["client_type"] != "lua":
                    found.append(said["command"].partition(" ")[0].upper())

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield found
        finally:
            speaker.echo("over")
            listener.join()
    found[:] = [word for word in found if word not in OPENING]


def in_threads(made: Callable[[], Lock], number: int) -> None:
    """Have so many threads take the lock by turns."""

    def take() -> None:
        for _ in range(ROUNDS):
            with made():
                pass

    threads = [threading.Thread(target=take) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_tasks(made: Callable[[], Lock], number: int) -> None:
    """Have so many tasks take the lock by turns."""

    async def take() -> None:
        for _ in range(ROUNDS):
            async with made():
                pass

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(take())

    asyncio.run(all_of_them())


@pytest.mark.parametrize("take", [in_threads, in_tasks])
@pytest.mark.parametrize("takers", [1, 3, 9, 33])
def test_commands_an_acquisition(
    server: Redis,
    opened: Opener,
    name: str,
    takers: int,
    take: Callable[[Callable[[], Lock], int], None],
) -> None:
    alias = opened(server.url()).alias

    def made() -> Lock:
        return lock(name, using=alias, ttl=60, wait=50)

    take(made, 1)  # the scripts are known from now on
    began = time.monotonic()
    with heard(server) as commands:
        take(made, takers)
    # Each of those who wait looks four times a second by itself: it blocks, and asks.
    turns = math.ceil((time.monotonic() - began) / (0.8 * SAFETY))
    looks = 2 * takers * turns if takers > 1 else 0
    each = 2 if takers == 1 else 4
    asked = len(commands) - 2 * commands.count("BLPOP")  # without waits
    assert len(commands) >= 2 * takers * ROUNDS
    assert len(commands) <= each * takers * ROUNDS + looks
    assert asked <= 3 * takers * ROUNDS + looks // 2
