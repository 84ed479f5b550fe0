"""What is wrong in the log of a storm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["NO_HEIRS", "Heirs", "Judged", "judge", "read"]


@dataclass(frozen=True)
class Heirs:
    """What it costs that a lock is handed to one who waits and was hit: there may be several."""

    living: float = 0.0
    """Seconds for which one who was hit is taken to be alive."""
    turn: float = 0.0
    """Seconds after which the lock goes from him to the next."""


NO_HEIRS = Heirs()
"""Where a lock is granted to those alone who ask for it."""


@dataclass
class Judged:
    """What was seen, and the faults in it."""

    grants: int = 0
    refused: int = 0
    lost: int = 0
    unreached: list[str] = field(default_factory=list)
    longest_gap: float = 0.0
    faults: list[str] = field(default_factory=list)


def read(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def judge(lines: Iterable[Mapping[str, Any]], most_gap: float, heirs: Heirs = NO_HEIRS) -> Judged:
    """Judge: nobody sure while a later holder was, tokens that rise, no gap longer than that.

    A holder was sure at the moments that it wrote, each of them looked at before its check.
    Somebody always waits, so that there is no long time without such a moment, or one at which the
    store showed the lock as held by one who was then killed or stopped.
    """
    seen = Judged()
    sure: dict[int, list[float]] = {}
    owners: dict[int, set[int]] = {}
    held: list[float] = []
    struck: list[float] = []
    for line in lines:
        token = line.get("token", 0)
        match line["what"]:
            case "sure":
                sure.setdefault(token, []).append(line["at"])
                owners.setdefault(token, set()).add(line["pid"])
                held.append(line["at"])
            case "held":
                held.append(line["at"])
            case "struck":
                struck.append(line["at"])
            case "refused":
                seen.refused += 1
                if line["sure"]:
                    seen.faults.append(f"its write was refused and it was sure: {line}")
            case "lost":
                seen.lost += 1
            case "unreached":
                seen.unreached.append(line["error"])
            case "released":
                if line["lost"]:
                    seen.faults.append(f"a lost lease was released without a word: {line}")
            case _:
                seen.faults.append(f"a process died: {line}")
    seen.grants = len(sure)
    seen.faults += [
        f"token {token} of two: {pids}" for token, pids in owners.items() if len(pids) > 1
    ]
    holds = sorted((min(moments), max(moments), token) for token, moments in sure.items())
    for (_, end, token), (begin, _, later) in pairwise(holds):
        if begin <= end:
            seen.faults.append(f"two were sure: {token} until {end}, {later} from {begin}")
        if later <= token:
            seen.faults.append(f"the token did not rise: {token}, then {later} at {begin}")
    for end, begin in pairwise(sorted(held)):
        seen.longest_gap = max(seen.longest_gap, begin - end)
        turns = sum(end - heirs.living <= at <= begin for at in struck)
        if begin - end > most_gap + turns * heirs.turn:
            seen.faults.append(f"nobody from {end} to {begin}: {begin - end:.3f} s")
    return seen
