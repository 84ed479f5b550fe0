"""What the advisory backend does without a lock: choosing its words, looking, explaining."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.core.checks import CheckMessage
from django.db import connections

from ...conf import AliasConf, OptionSpec
from ...core.names import unreadable
from ...core.values import Cleaned, CleanPolicy, LockInfo, noted
from ...exceptions import InvalidLockBackendError
from ..base import BaseLockBackend
from ..row.pool import Exhausted, Pool
from ..row.session import Row
from ..table import errors
from ..table.checks import check_deploy
from ..table.located import InDatabase, moment
from ..table.options import whole_number
from . import checks
from .dialect import Dialect
from .holders import Holders
from .mysql import MySQL
from .postgresql import PostgreSQL
from .session import AdvisorySession

__all__ = ["Looks"]

T = TypeVar("T")

PAGE = 500
MOST = 10_000  # connections that an option may ask for
UNWRITTEN = 0.5  # seconds in which another process writes of a lock that it has just taken
NAP = 0.02


class Looks(InDatabase):
    """The half of the backend that holds nothing; its statements run in autocommit."""

    tables = "advisory"
    cleans = False
    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        "CONNECTIONS": whole_number(0, MOST),
        "IDLE": whole_number(0, MOST),
    }

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self._pool: Pool[AdvisorySession] = Pool(
            self.database,
            self.opts.get("CONNECTIONS", 20),
            self.opts.get("IDLE", 4),
            AdvisorySession,
        )
        self._holders = Holders(self._look)
        self._chosen: Dialect | None = None

    @property
    def dialect(self) -> Dialect:
        """The database's words."""
        if self._chosen is None:
            vendor = connections[self.database].vendor
            if vendor not in ("postgresql", "mysql"):
                raise InvalidLockBackendError(checks.refusal(self.alias, self.database))
            self._chosen = PostgreSQL() if vendor == "postgresql" else MySQL()
        return self._chosen

    def _look(self, work: Callable[[AdvisorySession], T], limit: float | None = None) -> T:
        """Do something in autocommit, on a session that holds nothing."""
        limit = limit or self.command_timeout
        session = self._pool.take(counted=False)
        sound = False
        try:
            with session.mutex:
                answer = session.run(lambda: work(session), limit, fresh=True)
            sound = True
            return answer
        finally:
            self._pool.give_back(session, counted=False, sound=sound)

    def inspect(self, name: str) -> LockInfo | None:
        row = self._holder(self.key(name))
        if row is None:
            return None
        return self._info(row) if row else self._unknown(name)

    def _holder(self, key: str) -> Row | None:
        """Return the row of who holds a lock; an empty one if that is told nowhere."""
        self._holders.write(self.dialect)
        end = time.monotonic() + UNWRITTEN
        while True:
            row = self._look(lambda session: self.dialect.holder(session, key))
            if row is not None:
                return row
            if not self._look(
                lambda session: self.dialect.is_held(session, self.dialect.lock_of(session, key))
            ):
                return None
            if time.monotonic() > end:
                return ()
            time.sleep(NAP)

    def _unknown(self, name: str) -> LockInfo:
        """Return what is known of a holder that has written nothing: that it holds the lock now."""
        now = datetime.now(UTC)
        return noted("", name=name, fencing_token=None, acquired_at=now, expires_at=None, owner="")

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

    def max_ttl(self, ttl: float) -> float:
        """Return the ttl, which on MariaDB and MySQL is of whole seconds."""
        if connections[self.database].vendor == "mysql":
            return max(1.0, float(-(-ttl // 1)))
        return ttl

    def is_conflict(self, error: Exception) -> bool:
        return errors.is_conflict(error)

    def remedy(self, error: Exception) -> str:
        driver: Any = error.__cause__ or error
        codes = {getattr(driver, "sqlstate", None), *driver.args[:1]}
        if "53200" in codes and "max_locks_per_transaction" in str(error.__cause__ or error):
            return checks.lock_table_full(self.database)
        if self._chosen is not None and codes & self._chosen.refused:
            return checks.permission(self.database)
        if isinstance(error, Exhausted):
            return "Raise OPTIONS 'CONNECTIONS'"
        return errors.remedy(error, self.database)

    def check(self) -> list[CheckMessage]:
        return checks.check(self.alias, self.database)

    def check_deploy(self) -> list[CheckMessage]:
        return check_deploy(self.alias, self.database, partial(self.call, "inspect"))
