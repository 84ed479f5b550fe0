# ruff: noqa: S608 - only constants are put together into SQL
"""Row locks on MariaDB.

Who reads at READ UNCOMMITTED sees what the holder has written into its locked row: owner, session,
note and token. It is there as long as the lock is: a session that ends is rolled back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from django.db.utils import OperationalError

from ...core.values import Claim
from ..table.sql import MY_EMPTY, MY_NOTE, MY_NOW
from .dialect import LONGEST_WAIT, Missing, RowDialect
from .session import LockSession, Row

__all__ = ["EXISTS", "GRANT", "RowMariaDB", "is_locked"]

LOCKED: Final = {1205, 1213, 1969, 3572}
"""Errors that say that the row is locked; the last one is that of MySQL's NOWAIT."""

# The two siblings would win over the first one, where the server sets them.
LIMITS: Final = """SET SESSION idle_transaction_timeout = %(idle)s,
 idle_write_transaction_timeout = %(idle)s, idle_readonly_transaction_timeout = %(idle)s"""
LEVEL: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# The value is the statement's LAST_INSERT_ID, which comes with its answer.
GRANT: Final = f"""UPDATE distlock_row
 SET token = LAST_INSERT_ID(GREATEST(token + 1, {MY_NOW})), session = CONNECTION_ID(),
     owner = %(owner)s, name = %(name)s, note = {MY_NOTE}
 WHERE digest = %(key)s"""
READ: Final = "SELECT token FROM distlock_row WHERE digest = %(key)s"
# Without a wait the time of the statement is that of the lock.
_NO_WAIT: Final = f"SET STATEMENT innodb_lock_wait_timeout = 0 FOR {GRANT}"
LOCK: Final = ("START TRANSACTION", _NO_WAIT)
# Two statements, because the time of the one that waits is that of its beginning.
WAIT: Final = (
    """SET STATEMENT max_statement_time = %(most)s, innodb_lock_wait_timeout = %(most)s FOR
SELECT token FROM distlock_row WHERE digest = %(key)s FOR UPDATE""",
    _NO_WAIT,
)
# A row that keeps its size is changed where it is; else each waiter's entry is moved with it, which
# takes milliseconds when there are many. So the holder's words stay, and are nobody's.
FREE: Final = "UPDATE distlock_row SET session = 0 WHERE digest = %(key)s"
FREE_LATE: Final = f"""UPDATE distlock_row SET session = 0, token = GREATEST(token + 1, {MY_NOW})
 WHERE digest = %(key)s"""
EXISTS: Final = "SELECT 1 FROM distlock_row WHERE digest = %(key)s"
MAKE: Final = f"""SET STATEMENT innodb_lock_wait_timeout = 0 FOR
INSERT INTO distlock_row (digest, name, token, session, owner, note)
VALUES (%(key)s, %(name)s, {MY_NOW}, 0, {MY_EMPTY}, {MY_EMPTY})
ON DUPLICATE KEY UPDATE digest = digest"""
DIRTY: Final = "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"
_HELD: Final = (
    "SELECT digest, name, owner, token, note, session FROM distlock_row WHERE session <> 0"
)
HOLDER: Final = f"{_HELD} AND digest = %(key)s"
HOLDERS: Final = f"{_HELD} AND digest > %(after)s ORDER BY digest LIMIT %(size)s"
IDLE: Final = f"""SELECT digest, session = 0 AND token + 1 <= {MY_NOW} - %(older)s
  FROM distlock_row WHERE digest > %(after)s ORDER BY digest LIMIT %(size)s"""
REMOVE: Final = f"""SET STATEMENT innodb_lock_wait_timeout = 0 FOR
DELETE FROM distlock_row WHERE digest = %(key)s AND token + 1 <= {MY_NOW} - %(older)s"""


class RowMariaDB(RowDialect):
    """MariaDB's words."""

    limits: ClassVar[str] = LIMITS
    lock: ClassVar[Sequence[str]] = LOCK
    wait: ClassVar[Sequence[str]] = WAIT
    removed_at_once = 1

    def _limits(self, session: LockSession, claim: Claim) -> list[str]:
        """Return what sets the session's limits, if they are not what the claim needs."""
        idle = max(1, math.ceil(claim.ttl))
        if session.idle == idle:
            return []
        first = [LEVEL] if session.idle < 0 else []
        session.idle = idle
        return [*first, self.limits]

    def _given(self, claim: Claim) -> dict[str, Any]:
        return {**self.given(claim), "idle": max(1, math.ceil(claim.ttl))}

    def make(self, session: LockSession, claim: Claim) -> None:
        # Asked first: an INSERT would wait for the holder of a row that is there.
        if not session.fetch(EXISTS, self.given(claim)):
            try:
                self._insert(session, self.given(claim))
            except OperationalError as error:
                if not is_locked(session, error):
                    raise  # else it has been made meanwhile, and is held

    def _insert(self, session: LockSession, given: dict[str, Any]) -> None:
        session.change(MAKE, given)

    def attempt(self, session: LockSession, claim: Claim) -> int | None:
        try:
            row = session.execute([*self._limits(session, claim), *self.lock], self._given(claim))
        except OperationalError as error:
            if not is_locked(session, error):
                raise
            return None
        token = self.waited(session, claim, row)
        if token is None:
            raise Missing
        return token

    def send_wait(self, session: LockSession, claim: Claim) -> None:
        # The refusal has ended the one before, where innodb_rollback_on_timeout is on; in none the
        # row would be free again at once. Not in one message: the wait's answer is the first.
        session.execute(["START TRANSACTION"], {})
        session.send(self.wait, self.given(claim) | {"most": round(LONGEST_WAIT)})

    def waited(self, session: LockSession, claim: Claim, row: Row | None) -> int | None:
        if row is None or not row[1]:
            return None
        if not row[0]:  # a trigger of the table hides it
            row = session.fetch(READ, self.given(claim))[0]
        return int(row[0])

    def renew(self, session: LockSession, claim: Claim) -> None:
        session.execute(self._limits(session, claim) or ["SELECT 1"], self._given(claim))

    def release(self, session: LockSession, claim: Claim, *, long: bool) -> None:
        session.execute([FREE_LATE if long else FREE, "COMMIT"], self.given(claim))

    def cancel(self, session: LockSession, other: LockSession, limit: float) -> None:
        raw: Any = session.connection.connection
        number = {"number": raw.thread_id()}
        other.run(lambda: other.change("KILL QUERY %(number)s", number), limit, fresh=True)

    def holder(self, session: LockSession, key: str) -> Row | None:
        rows = self._dirty(session, HOLDER, {"key": key})
        return rows[0] if rows else None

    def holders(self, session: LockSession, after: str, size: int) -> tuple[list[Row], str | None]:
        rows = self._dirty(session, HOLDERS, {"after": after, "size": size})
        return rows, rows[-1][0] if len(rows) == size else None

    def _dirty(self, session: LockSession, sql: str, given: dict[str, Any]) -> list[Row]:
        session.execute([DIRTY], {})  # for the next statement only
        return session.fetch(sql, given)

    def end(self, session: LockSession, key: str, owner: str) -> bool:
        row = self.holder(session, key)
        if row is None or row[2] != owner:
            return False
        session.change("KILL CONNECTION %(number)s", {"number": row[5]})
        return True

    def idle_rows(
        self, session: LockSession, after: str, size: int, older: int
    ) -> list[tuple[str, bool]]:
        rows = self._dirty(session, IDLE, {"after": after, "size": size, "older": older})
        return [(digest, bool(idle)) for digest, idle in rows]

    def remove(self, session: LockSession, digests: Sequence[str], older: int) -> int:
        [digest] = digests
        try:
            return self._delete(session, {"key": digest, "older": older})
        except OperationalError as error:
            if not is_locked(session, error):
                raise
            return 0  # another session is about to take it

    def _delete(self, session: LockSession, given: dict[str, Any]) -> int:
        return session.change(REMOVE, given)


def is_locked(session: LockSession, error: Exception) -> bool:
    """Return whether an error says that another has the row, which leaves the session as it was."""
    driver: Any = error.__cause__ or error
    if not driver.args or driver.args[0] not in LOCKED:
        return False
    # Else the session would be closed after its use, as one of which nothing is known.
    session.connection.errors_occurred = False
    return True
