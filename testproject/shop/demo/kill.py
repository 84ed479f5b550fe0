"""The kill: a worker dies while it holds the lock, and the others wait for the ttl to pass."""

from __future__ import annotations

import time
from functools import partial

from django_distlock import locks

from .crew import Crew, DemoError, turns_of
from .figures import NS_PER_MS, KillResult
from .jobs import HOLD, RACE, Job
from .journal import ASKED, DONE, HELD
from .race import TTL_SECONDS, WAIT_SECONDS, Plan, references
from .screen import Screen
from .stock import audit, put_on_sale

KILL_TTL_SECONDS = 1.5
SPARE_SECONDS = 10  # given beyond the backend's promise before the others count as stuck
HOLD_SECONDS = 3600
ALLOWANCE_SECONDS = 1.0
SETTLE_SECONDS = 0.1  # so that the others are well within their waiting


def run_kill(crew: Crew, plan: Plan, screen: Screen, *, technique: str, alias: str) -> KillResult:
    """Kill the holder of a lock with a short ttl, and measure how long the others wait for it."""
    crew.fill()
    victim, *others = crew.workers
    product = put_on_sale(plan.demo, 2 * len(others))
    job = partial(Job, product=product.pk, lock_name=product.lock_name, alias=alias)
    backend = locks[alias]
    longest = backend.max_ttl(KILL_TTL_SECONDS)
    with screen.kill(technique, alias, KILL_TTL_SECONDS):
        hold = partial(job, HOLD, think=HOLD_SECONDS, ttl=KILL_TTL_SECONDS, wait=WAIT_SECONDS)
        race = partial(job, RACE, think=plan.think, ttl=TTL_SECONDS, wait=WAIT_SECONDS)
        crew.prepare(others, race)
        crew.prepare([victim], hold)
        crew.go([victim])
        crew.until([victim], HELD, WAIT_SECONDS, "a worker holds the lock")
        crew.go(others)
        crew.until(others, ASKED, WAIT_SECONDS, "the others wait for the lock")
        time.sleep(SETTLE_SECONDS)
        killed = crew.kill(victim)
        stuck = ""
        try:
            limit = longest + backend.grace + SPARE_SECONDS + plan.time_limit(product.stock) - 60
            crew.until(others, DONE, limit, "the others have had the lock")
        except DemoError as error:
            if any(worker.process.poll() is not None for worker in others):
                raise
            stuck = str(error)
    turns = turns_of(others)
    firsts: dict[int, int] = {}
    for turn in turns:
        firsts.setdefault(turn.worker, turn.granted)
    if stuck:
        screen.note(stuck)
    return KillResult(
        technique=technique,
        alias=alias,
        ttl_ms=KILL_TTL_SECONDS * 1000,
        limit_ms=(longest + max(ALLOWANCE_SECONDS, backend.grace)) * 1000,
        waiters=len(others),
        waited_ms=tuple(sorted((at - killed) / NS_PER_MS for at in firsts.values())),
        early=sum(turn.granted < killed for turn in turns),
        audit=audit(product, references(turns), locked=True),
    )
