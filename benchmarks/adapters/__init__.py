"""The adapters, by the stores that they are measured on."""

from __future__ import annotations

from collections.abc import Collection

from ..adapter import Adapter
from .advisory import BareAdvisory, DjangoMySQL, OursAdvisory, OursAdvisoryShared, ToozMySQL
from .consul import CONSUL
from .db_mutex import DbMutex
from .etcd import ETCD
from .for_update import BareForUpdate, SelectForUpdate
from .orm import CreateAndDelete
from .ours import (
    Ours,
    OursLimited,
    OursPolling,
    OursRow,
    OursShared,
    OursVersion,
    OursVersionLimited,
    OursVersionShared,
)
from .pglock import PgLock, PgLockShared
from .redis import REDIS, REDLOCK
from .statements import Bare, BarePolled, BarePrepared
from .swap import BareSwap, BareSwapPolled, DjangoConcurrency
from .zookeeper import ZOOKEEPER

__all__ = ["ADAPTERS", "adapters"]

ROW = (OursRow, BareForUpdate, SelectForUpdate)
ADVISORY = (OursAdvisory, BareAdvisory)
GET_LOCK = (*ADVISORY, DjangoMySQL, ToozMySQL)
SEVERAL = (OursShared, OursLimited, OursVersionShared, OursVersionLimited)
VERSION = (OursVersion, BareSwap, BareSwapPolled, DjangoConcurrency)
ADAPTERS: dict[str, tuple[type[Adapter], ...]] = {
    "sqlite": (
        *(Ours, OursPolling, Bare, BarePolled, DbMutex, CreateAndDelete),
        *(*VERSION, *SEVERAL),
    ),
    "postgresql": (
        *(Ours, OursPolling, Bare, BarePrepared, BarePolled, DbMutex, PgLock, CreateAndDelete),
        *(*ROW, *ADVISORY, OursAdvisoryShared, PgLockShared, *VERSION, *SEVERAL),
    ),
    "mariadb": (
        *(Ours, OursPolling, Bare, BarePolled, DbMutex, CreateAndDelete),
        *(*ROW, *GET_LOCK, *VERSION, *SEVERAL),
    ),
    "mysql": (Ours, OursRow, BareForUpdate, SelectForUpdate, *GET_LOCK),
    "redis": REDIS,
    "redlock": REDLOCK,
    "etcd": ETCD,
    "consul": CONSUL,
    "zookeeper": ZOOKEEPER,
}


def adapters(
    store: str, backends: Collection[str], kinds: Collection[str]
) -> tuple[list[Adapter], dict[str, list[str]]]:
    """Return those of a store that stand beside these backends, and what the others need."""
    chosen = [each for each in ADAPTERS[store] if each.backend in backends and each.kind in kinds]
    made = [each(store) for each in chosen]
    absent = {each.name: each.missing() for each in made if each.missing()}
    return [each for each in made if not each.missing()], absent
