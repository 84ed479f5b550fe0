"""Optimistic locks: a compare-and-swap on a version column.

The row is read without locking anything. Only when the lock is free is it written, and only if its
version is still the one that was read and the lock is still free by the database's clock: the
expiry is judged again, because a renewal in between does not change the version. One row changed is
the grant, and the new version is its fencing token; none is a conflict, and the loser reads again
later.

The table is that of the table backend, and so are its rows: aliases of both that name the same
database and PREFIX exclude each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from django.core.checks import CheckMessage
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import AliasConf, OptionSpec
from ..core.names import readable
from ..core.values import Claim
from .base import BaseLockBackend
from .table import TableBackend, checks, text_for
from .table.dialect import Dialect, patient, qualified
from .table.optimistic import Optimistic
from .table.sql import (
    MARIADB,
    MY_NOTE,
    MY_NOW,
    MY_PATIENCE,
    MYSQL,
    PG_NOW,
    PG_PATIENCE,
    POSTGRESQL,
    SQLITE,
)
from .table.statements import Seen, Statements, TextStatements, write

__all__ = ["VersionBackend"]


@dataclass(frozen=True, slots=True)
class Take:
    """The statement that takes a row as it was seen, in the SQL of one database.

    ``take_soon`` limits how long the server waits for a row that another transaction has locked;
    without a conflict no statement waits for anything.
    """

    take: str
    take_soon: str = ""


def _take(now: str) -> str:
    return f"""
UPDATE distlock_lock
   SET owner = %(owner)s, token = %(token)s, acquired = %(acquired)s,
       expires = {now} + %(ttl)s, name = %(name)s, note = %(note)s
 WHERE digest = %(key)s AND token = %(seen)s
   AND (owner = %(owner)s OR expires <= {now})"""  # noqa: S608


_MY_TAKE: Final = _take(MY_NOW).replace("%(note)s", MY_NOTE)

TAKES: Final[tuple[tuple[Dialect, Take], ...]] = (
    (SQLITE, Take(_take("%(now)s"))),
    (POSTGRESQL, Take(_take(PG_NOW), f"{_take(PG_NOW)} AND {PG_PATIENCE}")),
    (MARIADB, Take(_MY_TAKE, MY_PATIENCE + _MY_TAKE)),
    # A statement that writes cannot be given a limit there.
    (MYSQL, Take(_MY_TAKE, _MY_TAKE)),
)


class VersionStatements(Optimistic, TextStatements):
    """The attempt by compare-and-swap; all else by the statements of the table backend."""

    def __init__(self, dialect: Dialect, taking: Take) -> None:
        super().__init__(dialect)
        self.taking = taking

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
            return write(connection, self.taking.take, given) == 1
        return write(connection, self.taking.take_soon, given | patient(patience)) == 1


class VersionBackend(TableBackend):
    """Optimistic locks in the lock table, on any database of Django's.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``,
    ``SQL`` and ``SCHEMA``, as of the table backend. Losers do not queue: they try again after a
    pause.
    """

    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        "SCHEMA": TableBackend.options["SCHEMA"],
        "SQL": TableBackend.options["SQL"],
    }

    at_once = 1  # each goes by what was read of its row

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self.notifies = False

    def _choose(self, connection: BaseDatabaseWrapper) -> Statements:
        text = None if self.opts.get("SQL") == "portable" else text_for(connection)
        for dialect, taking in TAKES:
            if dialect is text:
                schema = self.opts.get("SCHEMA")
                return VersionStatements(qualified(dialect, schema), qualified(taking, schema))
        return super()._choose(connection)

    def check(self) -> list[CheckMessage]:
        # Nothing here needs SQLite's RETURNING, which "auto" means in the table backend's checks.
        schema = self.opts.get("SCHEMA")
        return checks.check(self.alias, self.database, "portable", schema=schema)
