"""What the row backend does without a lock: choosing its words, looking, cleaning, explaining."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.core.checks import CheckMessage
from django.db import connections

from ...conf import AliasConf, OptionSpec
from ...core.descriptors import engine_of, is_multi_primary
from ...core.names import unreadable
from ...core.values import Cleaned, CleanPolicy, LockInfo, moment, noted
from ...exceptions import InvalidLockBackendError
from ..base import BaseLockBackend
from ..options import whole_number
from ..table import errors
from . import checks
from .dialect import RowDialect
from .mariadb import RowMariaDB
from .mysql import RowMySQL
from .postgresql import RowPostgreSQL
from .session import LockSession, Row
from .sessions import MOST, Exhausted, InSessions, SessionPool

__all__ = ["RowInspection"]

T = TypeVar("T")

_TABLE = "distlock_row"
PAGE = 500


class RowInspection(InSessions[LockSession]):
    """The half of the backend that holds nothing; its statements run in autocommit."""

    tables = "row"
    reason = "To break a row lock"
    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        "CONNECTIONS": whole_number(1, MOST),
        "IDLE": whole_number(0, MOST),
    }

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        most, idle = self.opts.get("CONNECTIONS", 50), self.opts.get("IDLE", 4)
        self._pool = SessionPool(self.database, most, idle, LockSession)
        self._chosen: RowDialect | None = None

    def dialect(self, limit: float | None = None) -> RowDialect:
        """Return the database's words; the first use asks the server, within ``limit`` seconds."""
        if self._chosen is None:
            vendor = connections[self.database].vendor
            if vendor not in ("postgresql", "mysql"):
                raise InvalidLockBackendError(checks.refusal(self.alias, self.database))
            self._chosen = RowPostgreSQL() if vendor == "postgresql" else self._mysql(limit)
        return self._chosen

    def _mysql(self, limit: float | None) -> RowDialect:
        def ask(session: LockSession) -> tuple[bool, str | None]:
            connection: Any = session.connection
            if is_multi_primary(connection):
                raise InvalidLockBackendError(checks.multi_primary(self.database, "A row lock"))
            return connection.mysql_is_mariadb, engine_of(connection, _TABLE)

        is_mariadb, engine = self._look(ask, limit)
        if engine not in (None, "innodb"):
            why = checks.no_row_locks(self.alias, self.database, _TABLE, engine)
            raise InvalidLockBackendError(why)
        return RowMariaDB() if is_mariadb else RowMySQL()

    def inspect(self, name: str) -> LockInfo | None:
        row = self._holder(self.key(name))
        return None if row is None else self._info(row)

    def _holder(self, key: str) -> Row | None:
        return self._look(lambda session: self.dialect().holder(session, key))

    def _page(self, after: str) -> tuple[list[Row], str | None]:
        return self._look(lambda session: self.dialect().holders(session, after, PAGE))

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        if not cursor and not policy.dry_run:
            self._look(self.dialect().tidy)
        return super().clean_batch(policy, cursor)

    def _info(self, row: Row) -> LockInfo:
        _, name, owner, token, note, _ = row
        return noted(
            note,
            name=unreadable(name),
            fencing_token=int(token),
            # The token is the clock at the grant, unless the clock was set back.
            acquired_at=moment(int(token)),
            expires_at=None,
            owner=owner,
        )

    def _rest(self, after: str, size: int, older: int) -> list[tuple[str, bool]]:
        return self._look(lambda session: self.dialect().idle_rows(session, after, size, older))

    def _remove(self, digests: Sequence[str], older: int) -> int:
        dialect, removed = self.dialect(), 0
        for start in range(0, len(digests), dialect.removed_at_once):
            some = digests[start : start + dialect.removed_at_once]
            removed += self._look(partial(dialect.remove, digests=some, older=older))
        return removed

    # -- for the layers above ----------------------------------------------------------------------

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, Exhausted) or super().is_conflict(error)

    def remedy(self, error: Exception) -> str:
        if isinstance(error, Exhausted):
            return "Hold fewer locks at a time, or raise OPTIONS 'CONNECTIONS' and the server's own"
        settings = connections[self.database].settings_dict
        silent = isinstance(error, errors.Overdue) and settings.get("DISABLE_SERVER_SIDE_CURSORS")
        if silent or errors.is_pooler_busy(error):
            return checks.pooler(self.database)
        return super().remedy(error)

    def check(self) -> list[CheckMessage]:
        return checks.check(self.alias, self.database)
