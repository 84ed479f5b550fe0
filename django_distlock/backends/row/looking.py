"""What the row backend does without a lock: choosing its words, looking, cleaning, explaining."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

from django.core.checks import CheckMessage
from django.db import connections
from django.db.utils import DatabaseError, InterfaceError

from ...conf import AliasConf, OptionSpec
from ...exceptions import InvalidLockBackendError
from ...names import key_of, unreadable
from ...values import Cleaned, CleanPolicy, LockInfo, Note
from ..base import BaseLockBackend
from ..table import errors
from . import checks
from .dialect import Dialect
from .mariadb import MariaDB
from .pool import Exhausted, Pool
from .postgresql import PostgreSQL
from .session import Row, Session

__all__ = ["Looks"]

T = TypeVar("T")

PAGE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _count(least: int) -> Callable[[Any], int]:
    def judge(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number from {least} on is expected, not {value!r}")
        return value

    return judge


class Looks(BaseLockBackend):
    """The half of the backend that holds nothing; its statements run in autocommit."""

    store_errors = (DatabaseError, InterfaceError)
    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        "CONNECTIONS": _count(1),
        "IDLE": _count(0),
    }

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        database = "default" if conf.location is None else conf.location
        if not isinstance(database, str) or database not in connections.settings:
            known = ", ".join(map(repr, connections.settings))
            raise InvalidLockBackendError(
                f"DISTLOCKS[{alias!r}]['LOCATION'] is an alias of DATABASES ({known}), "
                f"not {database!r}."
            )
        self.database = database
        self._pool = Pool(database, self.opts.get("CONNECTIONS", 50), self.opts.get("IDLE", 4))
        self._chosen: Dialect | None = None

    def dialect(self) -> Dialect:
        """Return the database's words; the first use asks the server who it is."""
        if self._chosen is None:
            vendor = connections[self.database].vendor
            if vendor not in ("postgresql", "mysql"):
                raise InvalidLockBackendError(checks.refusal(self.alias, self.database))
            self._chosen = PostgreSQL() if vendor == "postgresql" else self._mysql()
        return self._chosen

    def _mysql(self) -> Dialect:
        def is_mariadb(session: Session) -> bool:
            return bool(session.connection.mysql_is_mariadb)  # type: ignore[attr-defined]

        if not self._look(is_mariadb):
            raise InvalidLockBackendError(checks.no_mysql(self.alias, self.database))
        return MariaDB()

    def _look(self, work: Callable[[Session], T]) -> T:
        """Do something in autocommit, on a session that holds nothing."""
        session = self._pool.take(counted=False)
        sound = False
        try:
            with session.mutex:
                answer = session.run(lambda: work(session), self.command_timeout, fresh=True)
            sound = True
            return answer
        finally:
            self._pool.give_back(session, counted=False, sound=sound)

    def inspect(self, name: str) -> LockInfo | None:
        key = self.key(name)
        row = self._look(lambda session: self.dialect().holder(session, key))
        return None if row is None else _info(row)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        after: str | None = ""
        while after is not None:
            rows, after = self._page(after)
            for row in rows:
                info = _info(row)
                # The table is shared by aliases with other PREFIXes: the digest tells whose it is.
                if info.name.startswith(prefix) and row[0] == key_of(self.conf.prefix, info.name):
                    yield info

    def _page(self, after: str) -> tuple[list[Row], str | None]:
        return self._look(lambda session: self.dialect().holders(session, after, PAGE))

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        dialect = self.dialect()
        older = round(policy.older_than * 1_000_000)
        size = policy.batch
        rows = self._look(lambda session: dialect.idle_rows(session, cursor, size, older))
        idle = [digest for digest, is_idle in rows if is_idle]
        removed = len(idle)
        if not policy.dry_run:
            if not cursor:
                self._look(dialect.tidy)
            if idle:
                removed = self._look(lambda session: dialect.remove(session, idle, older))
        return Cleaned(
            removed=removed, seen=len(rows), cursor=rows[-1][0] if len(rows) == size else None
        )

    # -- for the layers above ----------------------------------------------------------------------

    def max_ttl(self, ttl: float) -> float:
        """Return the ttl, which on MariaDB is of whole seconds."""
        if connections[self.database].vendor == "mysql":
            return max(1.0, float(-(-ttl // 1)))
        return ttl

    def place(self) -> object:
        return connections.settings.get(self.database, {}).get("NAME")

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, Exhausted) or errors.is_conflict(error)

    def remedy(self, error: Exception) -> str:
        if isinstance(error, Exhausted):
            return "Hold fewer locks at a time, or raise OPTIONS 'CONNECTIONS' and the server's own"
        driver: Any = error.__cause__ or error
        codes = {getattr(driver, "sqlstate", None), *driver.args[:1]}
        if self._chosen is not None and codes & self._chosen.refused:
            return checks.permission(self.database)
        return errors.remedy(error, self.database)

    def check(self) -> list[CheckMessage]:
        return checks.check(self.alias, self.database)

    def cleaned_with(self) -> Hashable:
        where = connections[self.database].settings_dict
        return ("row", *(str(where[key]) for key in ("ENGINE", "HOST", "PORT", "NAME")))


def _info(row: Row) -> LockInfo:
    _, name, owner, token, note, _ = row
    seen = Note.loads(note)
    return LockInfo(
        name=unreadable(name),
        holder=seen.holder,
        fencing_token=int(token),
        # The token is the clock at the grant, unless the clock was set back.
        acquired_at=_EPOCH + timedelta(microseconds=int(token)),
        expires_at=None,
        metadata=seen.metadata,
        owner=owner,
    )
