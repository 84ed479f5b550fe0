"""A process of a storm: it takes a few locks over and over, by the primitives of the store.

``python -m tests.backends.storm ALIAS GRANTS NAME...`` prints a JSON list of what it was granted.
Some leases are left to expire, some attempts are sent twice. `judge` looks at what all printed.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise

import django

BRIEF = 0.03  # the ttl of a lease that is left to expire
TTL = 30.0
HOLD = 0.001
LIMIT = 60.0


@dataclass(frozen=True)
class Turn:
    """One grant: its token, and from when until when its holder could rely on it."""

    name: str
    token: int
    begin: float
    end: float
    how: str  # "released", "expired" or "resent" (and released)


def judge(turns: Iterable[Turn]) -> list[str]:
    """Return what is wrong: turns that overlap, tokens that do not rise."""
    faults = []
    for name in {turn.name for turn in turns}:
        mine = sorted((turn for turn in turns if turn.name == name), key=lambda turn: turn.begin)
        for before, after in pairwise(mine):
            if after.begin < before.end:
                faults.append(f"two holders: {before} and {after}")
            if after.token <= before.token:
                faults.append(f"the token did not rise: {before} and {after}")
    return faults


def main(alias: str, grants: int, names: list[str]) -> None:
    """Take locks until there were so many grants, and print them."""
    from django_distlock import LockBackendError, locks
    from django_distlock.core.flow import drift
    from django_distlock.core.values import Claim, Grant
    from django_distlock.exceptions import StoreConflictError

    backend = locks[alias]
    limit = 0.0 if backend.queues else 5.0  # nobody is to stay in a queue
    dice = random.Random()
    turns: list[Turn] = []
    conflicts = 0

    def insist(verb: str, claim: Claim, *more: float) -> object:
        nonlocal conflicts
        while True:
            try:
                return backend.call(verb, claim, *more)
            except StoreConflictError:
                conflicts += 1
                time.sleep(0.002)

    end = time.monotonic() + LIMIT
    while len(turns) < grants:
        if time.monotonic() > end:
            raise LockBackendError(f"{len(turns)} grants in {LIMIT:g} s", alias=alias)
        name = dice.choice(names)
        how = dice.choice(["released"] * 6 + ["expired", "expired", "resent", "resent"])
        ttl = BRIEF if how == "expired" else TTL
        claim = Claim(name, backend.key(name), secrets.token_hex(16), ttl, "{}")
        asked = time.monotonic()
        answer = insist("try_acquire", claim, limit)
        if not isinstance(answer, Grant):
            time.sleep(dice.uniform(0, 0.004))
            continue
        begin, token = time.monotonic(), answer.fencing_token
        if how == "resent":
            again = insist("try_acquire", claim, limit)
            assert isinstance(again, Grant), again
            assert again.fencing_token == token, (again, token)
        if how == "expired":
            turns.append(Turn(name, token, begin, asked + ttl - drift(ttl), how))
            continue
        time.sleep(HOLD)
        turns.append(Turn(name, token, begin, time.monotonic(), how))
        assert insist("release", claim) is True
    # A lease that was granted too late to be of use is nobody's fault, but it is no turn either.
    kept = [asdict(turn) for turn in turns if turn.begin < turn.end]
    sys.stdout.write(json.dumps({"conflicts": conflicts, "turns": kept}))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
