"""What the tests and their tasks tell each other, through the broker's Redis."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import redis

LIMIT = 20
LONG = 60
"""Seconds; for a worker that starts, and for a broker, which looks every 10 s for what it delivers
again."""
OPEN = 2 * LONG
"""Seconds; tasks that are delivered again meanwhile go on as long."""


class Board:
    """A list of what tasks have said, and gates that they wait at."""

    def __init__(self) -> None:
        url = os.environ["DISTLOCK_TEST_BROKER"].rpartition("/")[0] + "/5"
        self.client: Any = redis.Redis.from_url(url, decode_responses=True, socket_timeout=OPEN + 5)

    def say(self, tag: str, word: str) -> None:
        """Add a word to what is said under ``tag``."""
        self.client.rpush(f"said:{tag}", json.dumps([word, os.getpid()]))

    def said(self, tag: str) -> list[str]:
        """Return the words said so far."""
        return [word for word, _ in self.entries(tag)]

    def entries(self, tag: str) -> list[tuple[str, int]]:
        """Return the words with the processes that said them."""
        return [tuple(json.loads(each)) for each in self.client.lrange(f"said:{tag}", 0, -1)]

    def pass_gate(self, tag: str, limit: float = LIMIT) -> None:
        """Wait until the gate is opened once more."""
        if self.client.blpop([f"gate:{tag}"], timeout=limit) is None:
            raise TimeoutError(tag)

    def open_gate(self, tag: str, times: int = 1) -> None:
        """Let ``times`` tasks pass."""
        self.client.rpush(f"gate:{tag}", *["go"] * times)

    def wait_for(self, tag: str, *words: str, limit: float = LIMIT) -> None:
        """Wait until these have been said, in this order and nothing else."""
        self.wait_until(tag, lambda said: said == list(words), limit)

    def wait_until(
        self, tag: str, condition: Callable[[list[str]], bool], limit: float = LIMIT
    ) -> None:
        """Wait until a condition holds for what has been said."""
        end = time.monotonic() + limit
        while not condition(said := self.said(tag)):
            assert time.monotonic() < end, said
            time.sleep(0.01)
