"""What the advisory backend does without a lock: choosing its words, looking, explaining."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, ClassVar

from django.core.checks import CheckMessage
from django.db import connections

from ...conf import AliasConf, OptionSpec
from ...core import clock
from ...core.names import unreadable
from ...core.values import Cleaned, CleanPolicy, LockInfo, moment, noted
from ...exceptions import InvalidLockBackendError
from ..base import BaseLockBackend
from ..options import whole_number
from ..row.session import Row
from ..row.sessions import MOST, InSessions, SessionPool
from ..table.errors import state_of
from . import checks
from .dialect import AdvisoryDialect
from .holders import Holders
from .mysql import AdvisoryMySQL
from .postgresql import AdvisoryPostgreSQL
from .session import AdvisorySession

__all__ = ["AdvisoryInspection"]

PAGE = 500
UNWRITTEN = 0.5  # seconds in which another process writes of a lock that it has just taken
NAP = 0.02


class AdvisoryInspection(InSessions[AdvisorySession]):
    """The half of the backend that holds nothing; its statements run in autocommit."""

    tables = "advisory"
    reason = "The holder's process does not answer, so"
    cleans = False
    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        "CONNECTIONS": whole_number(0, MOST),
        "IDLE": whole_number(0, MOST),
    }

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        most, idle = self.opts.get("CONNECTIONS", 20), self.opts.get("IDLE", 4)
        self._pool = SessionPool(self.database, most, idle, AdvisorySession)
        self._holders = Holders(self._look)
        self._chosen: AdvisoryDialect | None = None
        self.supports_shared = connections[self.database].vendor == "postgresql"

    @property
    def dialect(self) -> AdvisoryDialect:
        """The database's words."""
        if self._chosen is None:
            vendor = connections[self.database].vendor
            if vendor not in ("postgresql", "mysql"):
                raise InvalidLockBackendError(checks.refusal(self.alias, self.database))
            self._chosen = AdvisoryPostgreSQL() if vendor == "postgresql" else AdvisoryMySQL()
        return self._chosen

    def inspect(self, name: str) -> LockInfo | None:
        return next(iter(self.holders(name)), None)

    def holders(self, name: str) -> list[LockInfo]:
        self._holders.write(self.dialect)
        end = clock.now() + UNWRITTEN
        key = self.key(name)
        while (rows := self._look(partial(self._seen, key))) == [()] and clock.now() < end:
            time.sleep(NAP)
        if rows == [()]:
            return [LockInfo(name)]
        found = [self._info(row) for row in rows]
        if not found or not found[0].shared:
            return found[:1]
        return [each for each in found if each.shared]

    def _seen(self, key: str, session: AdvisorySession) -> list[Row]:
        """Return the rows of a lock's holders; an empty one if its holder has written none."""
        rows = self.dialect.holders_of(session, key)
        if not rows and self.dialect.is_held(session, self.dialect.lock_of(session, key)):
            return [()]
        return rows

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Refuse: what crashes have left is removed now and then by whoever writes beside it."""
        return BaseLockBackend.clean_batch(self, policy, cursor)

    def _page(self, after: str) -> tuple[list[Row], str | None]:
        if not after:
            self._holders.write(self.dialect)
        return self._look(lambda session: self.dialect.holders(session, after, PAGE))

    def _info(self, row: Row) -> LockInfo:
        _, name, owner, token, note, _, acquired = row
        return noted(
            note,
            name=unreadable(name),
            fencing_token=int(token),
            acquired_at=moment(int(acquired)),
            expires_at=None,
            owner=owner,
        )

    # -- for the layers above ----------------------------------------------------------------------

    def remedy(self, error: Exception) -> str:
        driver: Any = error.__cause__ or error
        full = state_of(driver) == "53200"
        if full and "max_locks_per_transaction" in str(driver):
            return checks.lock_table_full(self.database)
        return super().remedy(error)

    def check(self) -> list[CheckMessage]:
        return checks.check(self.alias, self.database)
