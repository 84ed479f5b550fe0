"""The measurements: each takes a `Bench` and returns its lines."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench, Row
from .engine import engine
from .failing import failing
from .fairness import fairness
from .growth import by_keys, by_leases, by_waiters
from .handover import handover
from .memory import memory
from .pairs import pairs
from .renewals import renewals
from .save import save
from .several import several
from .views import views

__all__ = ["MEASURES"]

MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "pairs": pairs,
    "engine": engine,
    "handover": handover,
    "fairness": fairness,
    "several": several,
    "failing": failing,
    "memory": memory,
    "growth-leases": by_leases,
    "renewals": renewals,
    "save": save,
    "views": views,
    "growth-waiters": by_waiters,
    "growth-keys": by_keys,  # at the end: it leaves so many names in the store
}
