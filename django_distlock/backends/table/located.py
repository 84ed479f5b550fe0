"""What the backends share whose locks are rows of a table in one of the project's databases."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from django.db import connections
from django.db.utils import DatabaseError, InterfaceError

from ...conf import AliasConf
from ...core.names import key_of
from ...core.values import Cleaned, CleanPolicy, LockInfo
from ...exceptions import InvalidLockBackendError
from ..base import BaseLockBackend

__all__ = ["InDatabase"]

Page = Callable[[str], tuple[list[tuple[Any, ...]], str | None]]


class InDatabase(BaseLockBackend):
    """Locks in the database that LOCATION names, an alias of DATABASES; ``"default"`` if none."""

    cleans = True
    store_errors = (DatabaseError, InterfaceError)
    tables: ClassVar[str] = "table"
    """Which tables: aliases with the same ones in one database are cleaned together."""

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

    @abstractmethod
    def _page(self, after: str) -> tuple[list[tuple[Any, ...]], str | None]:
        """Return the next held rows after a digest, and where to go on; None where it ends."""

    @abstractmethod
    def _info(self, row: tuple[Any, ...]) -> LockInfo:
        """Return what a row, whose first column is the digest, tells people."""

    def _told_by(self, row: tuple[Any, ...]) -> Iterable[LockInfo]:
        """Return what a row tells of each holder, where it may have several."""
        return (self._info(row),)

    @abstractmethod
    def _rest(self, after: str, size: int, older: int) -> list[tuple[str, bool]]:
        """Return the next ``size`` digests, and of each whether it is idle for ``older`` us."""

    @abstractmethod
    def _remove(self, digests: Sequence[str], older: int) -> int:
        """Delete those of the rows that are idle still; return how many."""

    def _lapsed_page(self, after: str) -> tuple[list[tuple[Any, ...]], str | None]:
        """Return the next rows whose lease ran out, as `_page`."""
        return [], None

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return self._infos(prefix, self._page)

    def scan_expired(self, prefix: str) -> Iterator[LockInfo]:
        return self._infos(prefix, self._lapsed_page)

    def _infos(self, prefix: str, page: Page) -> Iterator[LockInfo]:
        after: str | None = ""
        while after is not None:
            rows, after = page(after)
            for row in rows:
                for info in self._told_by(row):
                    # The table is shared by aliases with other PREFIXes: the digest tells whose.
                    mine = row[0] == key_of(self.conf.prefix, info.name)
                    if mine and info.name.startswith(prefix):
                        yield info

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Look at a page of the table, then remove of it what is idle still.

        Two statements, each a transaction of its own: what is read is not locked.
        """
        older = round(policy.older_than * 1_000_000)
        rows = self._rest(cursor, policy.batch, older)
        idle = [digest for digest, is_idle in rows if is_idle]
        removed = self._remove(idle, older) if idle and not policy.dry_run else len(idle)
        following = rows[-1][0] if len(rows) == policy.batch else None
        return Cleaned(removed=removed, seen=len(rows), cursor=following)

    def place(self) -> object:
        return connections.settings.get(self.database, {}).get("NAME")

    def cleaned_with(self) -> Hashable:
        where = connections[self.database].settings_dict
        return (self.tables, *(str(where[key]) for key in ("ENGINE", "HOST", "PORT", "NAME")))
