"""Holding a lock that several may hold, and looking who else does, by files in a folder."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from ..handler import locks
from ..lock import lock
from .runners import Actor

__all__ = ["Contention", "SeenGrant", "judge_contention", "meet"]

MANY_SECONDS = 60.0
ALONE, SHARED, SLOT = "alone", "shared", "slot"
MET = "met"


class Contention(NamedTuple):
    """What to do: take the lock ``rounds`` times, with a ``limit``, or shared or alone if it is 0.

    Who holds it has a file in ``folder``.
    """

    alias: str
    name: str
    folder: str
    rounds: int
    limit: int


class SeenGrant(NamedTuple):
    """One grant: how it was held, its token, when it was asked for and had, and who else was in."""

    who: int
    kind: str
    token: int
    asked: float
    had: float
    others: list[str]


async def meet(actor: Actor, contention: Contention, who: int) -> list[SeenGrant]:
    """Carry it out as number ``who``: under the lock show oneself, and look who is there."""
    folder, chance = Path(contention.folder), random.Random()  # noqa: S311 - hides nothing
    met = folder / MET
    seen = []
    for number in range(contention.rounds):
        # The first to come stays until there is another: all may be by turns else, if one is slow.
        alone = number > 0 and chance.random() >= 0.7
        kind = SLOT if contention.limit else ALONE if alone else SHARED
        modes: dict[str, dict[str, Any]]
        modes = {SLOT: {"limit": contention.limit}, SHARED: {"shared": True}, ALONE: {}}
        mode = modes[kind]
        guard = lock(contention.name, using=contention.alias, ttl=MANY_SECONDS, **mode)
        asked = time.monotonic()
        lease = await actor.take(guard, wait=MANY_SECONDS)
        had = time.monotonic()
        token = lease.fencing_token if locks[contention.alias].supports_fencing else 0
        shown = kind if lease.slot is None else str(lease.slot)
        mine = folder / f"{shown}-{who}-{number}"
        mine.touch()
        while True:
            await asyncio.sleep(chance.uniform(0, 0.006))
            others = [each.name for each in folder.iterdir() if each not in (mine, met)]
            if others:
                met.touch()
            if number > 0 or met.exists() or time.monotonic() - had > MANY_SECONDS / 2:
                break
        mine.unlink()
        await actor.release(lease)
        seen.append(SeenGrant(who, shown, token, asked, had, others))
        await asyncio.sleep(chance.uniform(0, 0.003))
    return seen


def judge_contention(
    seen: Iterable[SeenGrant], limit: int, *, fencing: bool, numbered: bool = True
) -> None:
    """Fail when one met whom it must not, or a token did not rise, or no two met.

    Unless they are ``numbered``, two who come to share it at one moment may have the same token.
    """
    seen = list(seen)
    for each in seen:
        kinds = [other.split("-")[0] for other in each.others]
        wrong = {
            ALONE: bool(kinds),
            SHARED: ALONE in kinds,
        }.get(each.kind, len(kinds) >= limit or each.kind in kinds)
        if wrong:
            raise AssertionError(f"{each} must not have met these")
    if not any(each.others for each in seen):
        raise AssertionError("nothing was tested: no two held the lock at once")
    if fencing:
        _judge_tokens(seen, numbered)


def _judge_tokens(seen: list[SeenGrant], numbered: bool) -> None:
    for one, other in combinations(seen, 2):
        sharing = one.kind == other.kind == SHARED
        at_once = other.asked <= one.had and one.asked <= other.had
        if one.token == other.token and (numbered or not (sharing and at_once)):
            raise AssertionError(f"a token was given twice: {one}, {other}")
    for each in seen:
        for later in seen:
            # Of two that share nothing is promised, nor of two slots.
            ordered = ALONE in (each.kind, later.kind) or each.kind == later.kind != SHARED
            if ordered and later.asked > each.had and later.token < each.token:
                raise AssertionError(f"a lower token was given later: {each}, then {later}")
