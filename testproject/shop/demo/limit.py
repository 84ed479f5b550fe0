"""The limit: all workers call a carrier that takes three requests at once."""

from __future__ import annotations

from functools import partial

from .crew import Crew, turns_of
from .figures import LimitResult, limit_result
from .jobs import CALL, Job
from .journal import DONE
from .race import TTL_SECONDS, WAIT_SECONDS, Plan
from .screen import Screen
from .stock import put_on_sale

LIMIT = 3
CALLS = 10  # of each worker
CALL_SECONDS = 0.03


def run_limit(crew: Crew, plan: Plan, screen: Screen, *, technique: str, alias: str) -> LimitResult:
    """Let all workers call at the same time, and look how many do at once."""
    crew.fill()
    product = put_on_sale(plan.demo, CALLS)
    job = partial(
        Job,
        CALL,
        product=product.pk,
        lock_name=f"carrier of {product.lock_name}",
        alias=alias,
        think=CALL_SECONDS,
        ttl=TTL_SECONDS,
        wait=WAIT_SECONDS,
        limit=LIMIT,
        calls=CALLS,
    )
    with screen.limit(technique, alias, LIMIT):
        crew.prepare(crew.workers, job)
        crew.go(crew.workers)
        calls = CALLS * len(crew.workers)
        crew.until(crew.workers, DONE, plan.time_limit(calls), "all have made their calls")
    return limit_result(technique, alias, LIMIT, turns_of(crew.workers))
