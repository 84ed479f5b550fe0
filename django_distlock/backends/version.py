"""Optimistic locks: a compare-and-swap on a version column.

The row is read without locking anything. Only when the lock is free is it written, and only if its
version is still the one that was read and the lock is still free by the database's clock: the
expiry is judged again, because a renewal in between does not change the version. One row changed is
the grant, and the new version is its fencing token; none is a conflict, and the loser looks again
later.

The table is that of the table backend, and so are its rows: aliases of both that name the same
database and PREFIX exclude each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.core.checks import CheckMessage
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import IntegrityError

from ..conf import AliasConf, OptionSpec
from ..core.names import readable
from ..core.values import Claim
from .base import BaseLockBackend
from .table import TableBackend, checks, text_for
from .table.cursor import cursor_of
from .table.optimistic import Optimistic, Seen, fresh_token
from .table.sql import (
    COLUMNS,
    MARIADB,
    MY_EMPTY,
    MY_NOTE,
    MY_NOW,
    MYSQL,
    PG_NOW,
    PG_PATIENCE,
    POSTGRESQL,
    SQLITE,
    Dialect,
    patient,
    qualified,
)
from .table.statements import Statements, TextStatements, fetch

__all__ = ["VersionBackend"]


@dataclass(frozen=True, slots=True)
class Swap:
    """The three statements of an attempt, in the SQL of one database.

    The ``_soon`` ones limit how long the server waits for a row that another transaction has
    locked; without a conflict no statement waits for anything.
    """

    look: str
    take: str
    make: str
    take_soon: str = ""
    make_soon: str = ""


_MAKE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
VALUES (%(key)s, %(name)s, '', %(fresh)s, 0, 0, '')"""  # noqa: S608 - constants, here and below

_PG_MAKE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
SELECT %(key)s::varchar, %(name)s::text, '', %(fresh)s::bigint, 0, 0, ''"""


def _look(now: str) -> str:
    return f"SELECT {now}, {COLUMNS} FROM distlock_lock WHERE digest = %(key)s"  # noqa: S608


def _take(now: str) -> str:
    return f"""
UPDATE distlock_lock
   SET owner = %(owner)s, token = %(token)s, acquired = %(acquired)s,
       expires = {now} + %(ttl)s, name = %(name)s, note = %(note)s
 WHERE digest = %(key)s AND token = %(seen)s
   AND (owner = %(owner)s OR expires <= {now})"""  # noqa: S608


_NOTHING: Final = " ON CONFLICT (digest) DO NOTHING"
_SAME: Final = " ON DUPLICATE KEY UPDATE digest = digest"
_MY_PATIENCE: Final = "SET STATEMENT max_statement_time = %(seconds)s FOR"
_MY_TAKE: Final = _take(MY_NOW).replace("%(note)s", MY_NOTE)
_MY_MAKE: Final = _MAKE.replace("''", MY_EMPTY) + _SAME

SWAPS: Final[tuple[tuple[Dialect, Swap], ...]] = (
    (SQLITE, Swap(_look("%(now)s"), _take("%(now)s"), _MAKE + _NOTHING)),
    (
        POSTGRESQL,
        Swap(
            look=_look(PG_NOW),
            take=_take(PG_NOW),
            take_soon=f"{_take(PG_NOW)} AND {PG_PATIENCE}",
            make=_PG_MAKE + _NOTHING,
            make_soon=f"{_PG_MAKE} WHERE {PG_PATIENCE}{_NOTHING}",
        ),
    ),
    (
        MARIADB,
        Swap(
            look=_look(MY_NOW),
            take=_MY_TAKE,
            take_soon=_MY_PATIENCE + _MY_TAKE,
            make=_MY_MAKE,
            make_soon=_MY_PATIENCE + _MY_MAKE,
        ),
    ),
    # A statement that writes cannot be given a limit there.
    (MYSQL, Swap(_look(MY_NOW), _MY_TAKE, _MY_MAKE, _MY_TAKE, _MY_MAKE)),
)


class VersionStatements(Optimistic, TextStatements):
    """The attempt by compare-and-swap; all else by the statements of the table backend."""

    def __init__(self, dialect: Dialect, swap: Swap) -> None:
        super().__init__(dialect)
        self.swap = swap
        self.looks = True

    def look(self, connection: BaseDatabaseWrapper, key: str) -> Seen | None:
        rows = fetch(connection, self.swap.look, {"key": key, **self.dialect.clock()})
        if not rows:
            return None
        now, digest, name, owner, token, acquired, expires, note = rows[0]
        return Seen(int(now), digest, name, owner, int(token), int(acquired), int(expires), note)

    def take(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        seen: Seen,
        token: int,
        patience: float | None,
    ) -> bool:
        given = self.dialect.acquiring(claim, readable(claim.name))
        mine = seen.owner == claim.owner
        given |= {
            "seen": seen.token,
            "token": token,
            "acquired": seen.acquired if mine else seen.now,
        }
        if patience is None:
            return self._write(connection, self.swap.take, given) == 1
        return self._write(connection, self.swap.take_soon, given | patient(patience)) == 1

    def make(
        self, connection: BaseDatabaseWrapper, claim: Claim, patience: float | None
    ) -> IntegrityError | None:
        given = {"key": claim.key, "name": readable(claim.name), "fresh": fresh_token()}
        if patience is None:
            self._write(connection, self.swap.make, given)
        else:
            self._write(connection, self.swap.make_soon, given | patient(patience))
        return None

    def _write(self, connection: BaseDatabaseWrapper, sql: str, given: dict[str, Any]) -> int:
        with cursor_of(connection) as cursor:
            cursor.execute(sql, given)
            return int(cursor.rowcount)


class VersionBackend(TableBackend):
    """Optimistic locks in the lock table, on any database of Django's.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``,
    ``SQL`` and ``SCHEMA``, as of the table backend. Losers do not queue: they look again after a
    pause.
    """

    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        "SCHEMA": TableBackend.options["SCHEMA"],
        "SQL": TableBackend.options["SQL"],
    }

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self.notifies = False

    def _choose(self, connection: BaseDatabaseWrapper) -> Statements:
        text = None if self.opts.get("SQL") == "portable" else text_for(connection)
        for dialect, swap in SWAPS:
            if dialect is text:
                schema = self.opts.get("SCHEMA")
                return VersionStatements(qualified(dialect, schema), qualified(swap, schema))
        return super()._choose(connection)

    def check(self) -> list[CheckMessage]:
        # Nothing here needs SQLite's RETURNING, which "auto" means in the table backend's checks.
        schema = self.opts.get("SCHEMA")
        return checks.check(self.alias, self.database, "portable", schema=schema)
