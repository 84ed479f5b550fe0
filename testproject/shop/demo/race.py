"""The race: all workers buy from one stock until nothing is left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from .crew import Crew, turns_of
from .figures import RaceResult, race_result
from .jobs import RACE, Job
from .journal import DONE, Turn
from .screen import Screen
from .stock import audit, put_on_sale

TTL_SECONDS = 30
WAIT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for; `think` in seconds."""

    demo: str
    stock: int
    think: float

    def time_limit(self, stock: int) -> float:
        """Return after how many seconds of buying something must be wrong."""
        return 60 + stock * (self.think + 0.25)


def run_race(
    crew: Crew, plan: Plan, screen: Screen, *, technique: str, alias: str | None
) -> RaceResult:
    """Let all workers buy until the stock is empty, under the alias's lock or without one."""
    crew.fill()
    product = put_on_sale(plan.demo, plan.stock)
    job = partial(
        Job,
        RACE,
        product=product.pk,
        lock_name=product.lock_name,
        alias=alias,
        think=plan.think,
        ttl=TTL_SECONDS,
        wait=WAIT_SECONDS,
    )
    with screen.race(technique, alias, plan.stock) as show:
        crew.prepare(crew.workers, job)
        crew.go(crew.workers)
        limit = plan.time_limit(plan.stock)
        crew.until(
            crew.workers, DONE, limit, "all is sold", lambda turns: show(len(references(turns)))
        )
    turns = turns_of(crew.workers)
    checked = audit(product, references(turns), locked=alias is not None)
    return race_result(technique, alias, turns, checked)


def references(turns: list[Turn]) -> list[str]:
    """Return the orders that the workers were told of."""
    return [turn.reference for turn in turns if turn.reference is not None]
