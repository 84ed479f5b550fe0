# ruff: noqa: S608 - only constants are put together into SQL
"""Row locks on MySQL: as on MariaDB, but for the limits.

MySQL has no limit for one statement. A claim that must not wait for a row asks by NOWAIT first, in
the same round trip, and the statement that grants then finds it locked by itself. Nor has it a
limit on idle transactions: that of idle sessions ends a holder that is silent.
"""

from __future__ import annotations

from typing import Any, Final

from django.db.utils import OperationalError

from ..table.sql import MY_EMPTY, MY_NOW
from .dialect import LONGEST_WAIT
from .mariadb import EXISTS, GRANT, RowMariaDB, is_locked
from .session import LockSession

__all__ = ["RowMySQL"]

LIMITS: Final = f"""SET SESSION wait_timeout = %(idle)s,
 innodb_lock_wait_timeout = {round(LONGEST_WAIT)}"""
NOWAIT: Final = "SELECT 1 FROM distlock_row WHERE digest = %(key)s FOR UPDATE NOWAIT"
LOCK: Final = ("START TRANSACTION", NOWAIT, GRANT)
WAIT: Final = ("SELECT 1 FROM distlock_row WHERE digest = %(key)s FOR UPDATE", GRANT)
# Who makes a row is alone: an INSERT of what is there would wait for its holder.
ALONE: Final = "SELECT GET_LOCK(%(room)s, 1)"
MAKE: Final = f"""INSERT INTO distlock_row (digest, name, token, session, owner, note)
VALUES (%(key)s, %(name)s, {MY_NOW}, 0, {MY_EMPTY}, {MY_EMPTY})"""
DONE: Final = "SELECT RELEASE_LOCK(%(room)s)"
REMOVE: Final = f"""DELETE FROM distlock_row
 WHERE digest = %(key)s AND token + 1 <= {MY_NOW} - %(older)s"""


class RowMySQL(RowMariaDB):
    """MySQL's words."""

    limits = LIMITS
    lock = LOCK
    wait = WAIT

    def _insert(self, session: LockSession, given: dict[str, Any]) -> None:
        given = {**given, "room": f"distlock-row:{given['key'][:40]}"}
        if session.fetch(ALONE, given) != [(1,)]:
            return  # another makes it; it takes a second for that
        try:
            if not session.fetch(EXISTS, given):
                session.change(MAKE, given)
        except OperationalError:
            session.fetch(DONE, given)
            raise
        # An interruption leaves answers unread: the session is closed then, which frees this too.
        session.fetch(DONE, given)

    def _delete(self, session: LockSession, given: dict[str, Any]) -> int:
        try:
            session.execute(["START TRANSACTION", NOWAIT], given)
            removed = session.change(REMOVE, given)
        except OperationalError as error:
            if is_locked(session, error):
                session.execute(["ROLLBACK"], {})
            raise
        session.execute(["COMMIT"], {})
        return removed
