"""The table backend's OPTIONS, and what stands in their place when they are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper

from ...conf import OptionSpec
from ...exceptions import InvalidLockBackendError

__all__ = ["ROOMS", "SPEC", "queues"]

ROOMS: Final = 4


def _waiting(value: Any) -> str:
    if value not in ("queue", "poll"):
        raise ValueError(f"'queue' or 'poll' is expected, not {value!r}")
    return str(value)


def _rooms(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError(f"a number of connections from 1 to 1000 is expected, not {value!r}")
    return value


def _whose_sql(value: Any) -> str:
    if value not in ("auto", "portable"):
        raise ValueError(f"'auto' or 'portable' is expected, not {value!r}")
    return str(value)


SPEC: Final[OptionSpec] = {"SQL": _whose_sql, "WAITING": _waiting, "ROOMS": _rooms}


def queues(alias: str, given: Mapping[str, Any], connection: BaseDatabaseWrapper) -> bool:
    """Tell whether waiters queue in the server: where it has a queue, unless told to poll.

    Session locks are left behind on a connection that a transaction pooler or a pool hands to the
    next: so not by default with DISABLE_SERVER_SIDE_CURSORS, which is how Django is told of a
    transaction pooler, nor with a psycopg pool.
    """
    portable = given.get("SQL") == "portable"
    has_queue = connection.vendor in ("postgresql", "mysql") and not portable
    if "WAITING" in given:
        if given["WAITING"] == "queue" and not has_queue:
            which = "the portable SQL" if portable else connection.display_name
            raise InvalidLockBackendError(
                f"DISTLOCKS[{alias!r}]['OPTIONS']['WAITING']: {which} has no queue to wait in; "
                "leave it out, or use 'poll'."
            )
        return bool(given["WAITING"] == "queue")
    settings = connection.settings_dict
    pooled = settings.get("DISABLE_SERVER_SIDE_CURSORS") or "pool" in settings["OPTIONS"]
    return has_queue and not pooled
