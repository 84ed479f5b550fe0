# ruff: noqa: S608 - only constants are put together into SQL
"""Advisory locks of sessions on MariaDB and MySQL: GET_LOCK().

Tokens are drawn from UUID_SHORT(), a counter of the server's that waits for no disk and rises for
as long as the server runs. Where it began is known when the server has started again, by the time
of its start: then the tokens go on from the clock, or from the greatest token that was noted, if
the clock was set back. A name whose row in the lock table has a greater token was locked by another
backend before: the tokens of all names are then raised, which each statement reads.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db.utils import Error

from ...core.descriptors import is_multi_primary
from ...core.values import Claim
from ...exceptions import InvalidLockBackendError
from ..row.checks import multi_primary
from ..row.dialect import LONGEST_WAIT
from ..row.session import Row
from ..table.errors import Outrun, Overdue
from ..table.sql import MY_NOTE, MY_NOW
from .dialect import COLUMNS, AdvisoryDialect
from .session import AdvisorySession

__all__ = ["AdvisoryMySQL"]

# The counter's low 56 bits: above them is the server's id.
_COUNTER: Final = f"CAST(UUID_SHORT() & {2**56 - 1} AS SIGNED)"
_OTHER: Final = "(SELECT token FROM distlock_lock WHERE digest = %(key)s)"
_TOKEN: Final = f"{_COUNTER} - first + base"
# Who raises the tokens waits for the statement's end, and so until this one has drawn.
TRY: Final = f"""SELECT IF(GET_LOCK(%(lock)s, 0) = 1, {_TOKEN}, NULL), {_OTHER}
  FROM distlock_advisory_run WHERE id = 1 LOCK IN SHARE MODE"""
# Read after the lock is granted, and so in a statement of its own.
DRAW: Final = f"""SELECT IF(IS_USED_LOCK(%(lock)s) = CONNECTION_ID(), {_TOKEN}, NULL), {_OTHER}
  FROM distlock_advisory_run WHERE id = 1"""
WAIT: Final = (f"SELECT GET_LOCK(%(lock)s, {round(LONGEST_WAIT)})", DRAW)
RAISE: Final = "UPDATE distlock_advisory_run SET base = base + %(lag)s WHERE id = 1"
UNLOCK: Final = "SELECT RELEASE_LOCK(%(lock)s)"
# The first one whole, however little group_concat_max_len leaves of all.
LOOK: Final = """SELECT CONCAT_WS(',', MIN(owner), GROUP_CONCAT(owner)) FROM distlock_advisory
 WHERE session = CONNECTION_ID() AND forced <> 0"""
# More than can have been drawn since the greatest token was noted.
_BEYOND: Final = 2**24
NEXT_RUN: Final = f"""REPLACE INTO distlock_advisory_run (id, run, first, base)
VALUES (1, %(run)s, {_COUNTER}, GREATEST(%(high)s, {MY_NOW})), (2, %(empty)s, 0, %(high)s)"""
# In a row of its own: it is written each second, and the other one is read by all.
READ_HIGH: Final = "SELECT base FROM distlock_advisory_run WHERE id = 2"
HIGH: Final = "UPDATE distlock_advisory_run SET base = GREATEST(base, %(token)s) WHERE id = 2"
_LIVE: Final = "IS_USED_LOCK(lock_key) = session"
_HOLDERS: Final = """SELECT digest, name, owner, token, note, session, acquired
  FROM distlock_advisory"""
HOLDER: Final = f"""{_HOLDERS} WHERE digest = %(digest)s AND {_LIVE}
 ORDER BY token DESC LIMIT 1"""
HOLDERS: Final = f"{_HOLDERS} WHERE token > %(after)s ORDER BY token LIMIT %(size)s"
HOLDERS_LIVE: Final = "SELECT token FROM distlock_advisory WHERE token IN %(tokens)s AND " + _LIVE
INSERT: Final = f"""INSERT INTO distlock_advisory ({COLUMNS}, forced)
VALUES (%(token)s, %(digest)s, %(name)s, %(owner)s, {MY_NOTE}, %(lock)s, %(session)s,
        {MY_NOW} - %(age)s, 0)
ON DUPLICATE KEY UPDATE forced = forced"""
_ENDED: Final = f"NOT COALESCE({_LIVE}, FALSE)"
# The key is named for servers and sessions with sql_safe_updates.
TIDY: Final = f"""DELETE FROM distlock_advisory
 WHERE token > 0 AND acquired < {MY_NOW} - 60000000 AND {_ENDED}"""


class AdvisoryMySQL(AdvisoryDialect):
    """The words of MySQL, and of MariaDB."""

    one = HOLDER
    row = INSERT
    gone = "DELETE FROM distlock_advisory WHERE token IN %(tokens)s"
    leftovers = TIDY
    ended = _ENDED
    keeps_high = True

    def lock_of(self, session: AdvisorySession, key: str) -> str:
        # Such locks are the server's, not the database's.
        where = f"{session.connection.settings_dict['NAME']}:{key}"
        return f"distlock:{hashlib.sha256(where.encode()).hexdigest()[:48]}"

    def limit_of(self, ttl: float) -> int:
        return max(1, math.ceil(ttl))

    def begin(self, session: AdvisorySession) -> None:
        if is_multi_primary(session.connection):
            database = session.connection.alias
            raise InvalidLockBackendError(multi_primary(database, "An advisory lock"))
        raw: Any = session.connection.connection
        session.number = int(raw.thread_id())
        run = self._run(session)
        if not self._is_begun(session, run):
            with self._alone(session):
                if not self._is_begun(session, run):
                    rows = session.fetch(READ_HIGH, {})
                    high = rows[0][0] + _BEYOND if rows else 0
                    session.change(NEXT_RUN, {"run": run, "high": high, "empty": "of all runs"})
        session.direct = True

    def _is_begun(self, session: AdvisorySession, run: str) -> bool:
        return session.fetch("SELECT run FROM distlock_advisory_run WHERE id = 1", {}) == [(run,)]

    @contextmanager
    def _alone(self, session: AdvisorySession) -> Iterator[None]:
        """Let one session at a time change from where tokens count."""
        lock = {"lock": self.lock_of(session, "run")}
        if session.fetch("SELECT GET_LOCK(%(lock)s, 5)", lock) != [(1,)]:
            raise Overdue("another session changes from where tokens count, and hangs")
        try:
            yield
        except Error:
            session.fetch(UNLOCK, lock)
            raise
        # An interruption leaves answers unread: the session is closed then, which frees this too.
        session.fetch(UNLOCK, lock)

    def _run(self, session: AdvisorySession) -> str:
        """Return what tells this run of the server from others: its address, and its start.

        That is a second: in the one in which it started no token is drawn, as it may have been
        killed, and start once more, in the same one.
        """
        show = "SHOW GLOBAL STATUS LIKE 'Uptime'"
        while True:
            # Uptime counts from the second in which its statement began.
            ((before,),) = session.fetch("SELECT UNIX_TIMESTAMP()", {})
            ((_, uptime),) = session.fetch(show, {})
            ((after, host, port),) = session.fetch(
                "SELECT UNIX_TIMESTAMP(), @@hostname, @@port", {}
            )
            if int(uptime) < 1:
                time.sleep(0.05)
            elif before == after:
                return f"{host[:60]}:{port}:{before - int(uptime)}"

    def set_limit(self, session: AdvisorySession) -> None:
        session.execute(["SET SESSION wait_timeout = %(limit)s"], {"limit": session.limit})
        session.idle = session.limit

    def send_try(self, session: AdvisorySession, lock: str, claim: Claim) -> None:
        session.send([TRY], {"lock": lock, "key": claim.key})

    def send_unlock(self, session: AdvisorySession, lock: str, *, shared: bool) -> None:
        session.send([UNLOCK], {"lock": lock})

    def send_wait(self, session: AdvisorySession, lock: str, claim: Claim) -> None:
        session.send(WAIT, {"lock": lock, "key": claim.key})

    def token(self, session: AdvisorySession, lock: str, key: str, row: Row | None) -> int | None:
        if row is None:
            self.begin(session)
            raise Outrun("the row from which tokens count was deleted, and is made again")
        token = super().token(session, lock, key, row)
        if token is None or row[1] is None or int(row[1]) < token:
            return token
        with self._alone(session):
            given = {"lock": lock, "key": key}
            ((token, other),) = session.fetch(DRAW, given)
            if token <= other:
                session.change(RAISE, {"lag": other - token + 1})
                ((token, other),) = session.fetch(DRAW, given)
        return int(token)

    def send_look(self, session: AdvisorySession) -> None:
        session.send([LOOK], {})

    def freed(self, row: Row | None) -> bool:
        return row is not None and row[0] is not None and int(row[0]) == 1

    def cancel(self, session: AdvisorySession, other: AdvisorySession, limit: float) -> None:
        number = {"number": session.number}
        other.run(lambda: other.change("KILL QUERY %(number)s", number), limit, fresh=True)

    def holders(
        self, session: AdvisorySession, after: str, size: int
    ) -> tuple[list[Row], str | None]:
        rows = session.fetch(HOLDERS, {"after": int(after or 0), "size": size})
        following = str(rows[-1][3]) if len(rows) == size else None
        if rows:
            tokens = {"tokens": tuple(row[3] for row in rows)}
            live = {token for (token,) in session.fetch(HOLDERS_LIVE, tokens)}
            rows = [row for row in rows if row[3] in live]
        return rows, following

    def is_held(self, session: AdvisorySession, lock: str) -> bool:
        return session.fetch("SELECT IS_USED_LOCK(%(lock)s)", {"lock": lock}) != [(None,)]

    def end(self, session: AdvisorySession, number: int) -> None:
        session.change("KILL CONNECTION %(number)s", {"number": number})

    def note_high(self, session: AdvisorySession, token: int) -> None:
        session.change(HIGH, {"token": token})
