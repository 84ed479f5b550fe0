"""The measurements: each takes a `Bench` and returns its lines."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench, Row
from .cycles import cycles
from .engine import engine
from .failing import failing
from .fairness import fairness
from .growth import by_keys, by_leases, by_waiters
from .handoff import handoff, limits
from .memory import memory
from .renewals import renewals
from .save import save
from .several import several
from .views import views

__all__ = ["MEASURES"]

MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "cycles": cycles,
    "engine": engine,
    "handoff": handoff,
    "fairness": fairness,
    "several": several,
    "limits": limits,
    "failing": failing,
    "memory": memory,
    "growth-leases": by_leases,
    "renewals": renewals,
    "save": save,
    "views": views,
    "growth-waiters": by_waiters,
    "growth-keys": by_keys,  # at the end: it leaves so many names in the store
}
