"""What is to be reached, and by how much it was reached or missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import ge, gt, le

from ..bench import Row
from .consul import judge_consul
from .databases import judge_database
from .etcd import judge_etcd
from .redis import judge_redis, judge_redlock
from .rows import Found, Rows
from .views import judge_views
from .zookeeper import judge_zookeeper

__all__ = ["Verdict", "judge"]

_JUDGES: dict[str, Callable[[Rows, str], Found]] = {
    "consul": judge_consul,
    "redis": judge_redis,
    "redlock": judge_redlock,
    "etcd": judge_etcd,
    "zookeeper": judge_zookeeper,
}
_REACHED: dict[str, Callable[[float, float], bool]] = {">=": ge, ">": gt, "<=": le}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and the figure beside it."""

    store: str
    what: str
    sign: str
    wanted: float
    got: float

    @property
    def reached(self) -> bool:
        """Whether the figure is as wanted."""
        return _REACHED[self.sign](self.got, self.wanted)

    @property
    def off_by(self) -> str:
        """How far the figure is from what is wanted, in per cent of it."""
        if not self.wanted:
            return f"{self.got - self.wanted:+g}"
        return f"{100 * (self.got / self.wanted - 1):+.0f} %"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict for each target that something was measured for."""
    return [
        Verdict(store, what, sign, wanted, got)
        for store in dict.fromkeys(row["store"] for row in rows)
        for what, sign, wanted, got in _found(Rows(rows, store), store)
    ]


def _found(rows: Rows, store: str) -> Found:
    yield from _JUDGES.get(store, judge_database)(rows, store)
    yield from judge_views(rows)
