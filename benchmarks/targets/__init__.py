"""What is to be reached, and by how much it was reached or missed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
    """One target and the figure beside it, or a text that says why there is none."""

    store: str
    what: str
    sign: str
    wanted: float
    got: float | str

    @property
    def reached(self) -> bool | None:
        """Whether the figure is as wanted; None without one."""
        if isinstance(self.got, str):
            return None
        return _REACHED[self.sign](self.got, self.wanted)

    @property
    def off_by(self) -> str:
        """How far the figure is from what is wanted, in per cent of it."""
        if isinstance(self.got, str):
            return ""
        if not self.wanted:
            return f"{self.got - self.wanted:+g}"
        return f"{100 * (self.got / self.wanted - 1):+.0f} %"


def judge(rows: list[Row], absent: Mapping[str, Collection[str]] | None = None) -> list[Verdict]:
    """Return a verdict for each target that something was measured for.

    ``absent`` are the names of what is not installed, by the stores that it was left out on.
    """
    left_out = absent or {}
    return [
        Verdict(store, what, sign, wanted, got)
        for store in dict.fromkeys(row["store"] for row in rows)
        for what, sign, wanted, got in _found(Rows(rows, store, left_out.get(store, ())), store)
    ]


def _found(rows: Rows, store: str) -> Found:
    yield from _JUDGES.get(store, judge_database)(rows, store)
    yield from judge_views(rows)
