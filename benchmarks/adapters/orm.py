"""What is found in many projects: a model with a unique name, created and deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..adapter import RETRY, Polled

__all__ = ["CreateAndDelete", "again"]


class CreateAndDelete(Polled):
    """``Row.objects.create(name=...)``: an IntegrityError says that another holds it."""

    name = "ORM create+delete"
    kind = "alternative"

    def open(self) -> None:
        """Connect."""
        from django.db import connections

        from ..orm.models import Row

        self._rows: Any = Row._default_manager
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()

    def try_acquire(self, key: str) -> Any:
        """Create the row, if it is not there."""
        from django.db.utils import IntegrityError, OperationalError

        try:
            return self._rows.create(name=key)
        except IntegrityError:
            return None
        except OperationalError:  # a dead lock on MariaDB, a busy file on SQLite
            self.failures += 1
            return None

    def release(self, handle: Any) -> None:
        """Delete the row."""
        self.failures += again(handle.delete)


def again(work: Callable[[], object]) -> int:
    """Do ``work``, again after an error of the database; return how often it failed."""
    from django.db.utils import OperationalError

    for failures in range(20):
        try:
            work()
        except OperationalError:
            time.sleep(RETRY)
        else:
            return failures
    raise RuntimeError("A lock could not be released in 20 attempts")
