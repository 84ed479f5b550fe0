"""Counting in a file that nothing protects but the lock, and judging what came of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..handler import locks
from ..lock import lock
from .runners import Actor

__all__ = ["Round", "Task", "count", "judge"]

MANY_SECONDS = 60.0


class Round(NamedTuple):
    """One grant: its token, when it was asked for and had, and what stood in the file.

    ``value`` is None where nothing was counted, because the lease was left to expire.
    """

    who: int
    token: int
    asked: float
    had: float
    value: int | None


class Task(NamedTuple):
    """What to do: take the lock ``rounds`` times, and count in ``file`` under it.

    Number 0 leaves one lease, of ``short`` seconds, to expire: no more, as a store may take half a
    minute to see that.
    """

    alias: str
    name: str
    file: str
    rounds: int
    short: float


async def count(actor: Actor, task: Task, who: int) -> list[Round]:
    """Carry the task out as number ``who``: under the lock read, think, write."""
    path = Path(task.file)
    chance = random.Random()  # noqa: S311 - hides nothing
    done = []
    forgotten = chance.randrange(task.rounds) if who == 0 else None
    for number in range(task.rounds):
        forgetful = number == forgotten
        ttl = task.short if forgetful else MANY_SECONDS
        guard = lock(task.name, using=task.alias, ttl=ttl, renew=not forgetful)
        asked = time.monotonic()
        lease = await actor.take(guard, wait=MANY_SECONDS)
        had = time.monotonic()
        token = lease.fencing_token if locks[task.alias].supports_fencing else 0
        value = None
        if forgetful:
            await asyncio.sleep(lease.remaining())
        else:
            value = int(path.read_text())
            await asyncio.sleep(chance.uniform(0, 0.002))
            path.write_text(str(value + 1))
            await actor.release(lease)
        del lease
        done.append(Round(who, token, asked, had, value))
        await asyncio.sleep(chance.uniform(0, 0.004))
    return done


def judge(rounds: Iterable[Round], file: str, *, fencing: bool) -> None:
    """Fail when an update was lost or tokens did not rise, or when no two met."""
    rounds = list(rounds)
    values = {each: each.value for each in rounds if each.value is not None}
    counted = sorted(values, key=values.__getitem__)
    if sorted(values.values()) != list(range(len(counted))):
        raise AssertionError(f"updates were lost: {counted}")
    if int(Path(file).read_text()) != len(counted):
        raise AssertionError(f"the file does not say {len(counted)}")
    if not any(before.who != after.who for before, after in pairwise(counted)):
        raise AssertionError("nothing was tested: the lock never changed hands")
    if fencing:
        _judge_tokens(rounds, counted)


def _judge_tokens(rounds: Sequence[Round], counted: Sequence[Round]) -> None:
    for before, after in pairwise(counted):
        if before.token >= after.token:
            raise AssertionError(f"the token did not rise: {before}, then {after}")
    # Of the expired ones it is only known that who had the lock before another asked came first.
    by_token = sorted(rounds, key=lambda each: each.token, reverse=True)
    first_had = float("inf")
    tokens = set()
    for each in by_token:
        if each.token in tokens:
            raise AssertionError(f"a token was given twice: {each}")
        if each.asked > first_had:
            raise AssertionError(f"a lower token was given later: {each}")
        tokens.add(each.token)
        first_had = min(first_had, each.had)
