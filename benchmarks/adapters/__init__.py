"""The adapters, by the stores that they are measured on."""

from __future__ import annotations

from ..adapter import Adapter
from .db_mutex import DbMutex
from .orm import CreateAndDelete
from .ours import Ours
from .pglock import PgLock
from .statements import Bare, BarePolled, BarePrepared

__all__ = ["ADAPTERS", "adapters"]

ADAPTERS: dict[str, tuple[type[Adapter], ...]] = {
    "sqlite": (Ours, Bare, BarePolled, DbMutex, CreateAndDelete),
    "postgresql": (Ours, Bare, BarePrepared, BarePolled, DbMutex, PgLock, CreateAndDelete),
    "mariadb": (Ours, Bare, BarePolled, DbMutex, CreateAndDelete),
}


def adapters(store: str) -> tuple[list[Adapter], list[str]]:
    """Return the adapters of a store, and what is to be said of those that cannot be used."""
    made = [kind(store) for kind in ADAPTERS[store]]
    absent = [f"{each.name}: needs {each.missing()}" for each in made if each.missing()]
    return [each for each in made if not each.missing()], absent
