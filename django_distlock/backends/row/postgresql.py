# ruff: noqa: S608 - only constants are put together into SQL
"""Row locks on PostgreSQL.

The holder's uncommitted changes cannot be seen. So each session writes beforehand, by a commit
that waits for no disk, what it is about; that it holds the row is told by the row's ``xmax``, the
transaction that has locked it, and its token by a shared advisory lock on that number, which never
blocks and ends with the transaction.

The row that is locked is never written: the server queues the waiters for a version of a row, and a
new version would have them all queue again, in another order. Tokens have a table of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...core.values import Claim
from ..table.connection import is_direct
from ..table.sql import PG_NOW
from .dialect import LONGEST_WAIT, Missing, RowDialect, milliseconds
from .session import LockSession, Row

__all__ = ["RowPostgreSQL"]

_IDLE_LIMIT: Final = "idle_in_transaction_session_timeout = %(idle)s"
_SHOW: Final = "pg_try_advisory_xact_lock_shared(drawn.token)"
_STORE: Final = f"""ON CONFLICT (digest) DO UPDATE
  SET token = greatest(t.token + 1, excluded.token, {PG_NOW}) RETURNING t.token"""

NOTE: Final = """INSERT INTO distlock_row_session AS s (session, digest, owner, note)
VALUES (pg_backend_pid(), %(key)s, %(owner)s, %(note)s)
ON CONFLICT (session) DO UPDATE
  SET digest = excluded.digest, owner = excluded.owner, note = excluded.note"""
# SKIP LOCKED, because NOWAIT would be an error in the server's log at each attempt.
LOCK: Final = f"""WITH locked AS MATERIALIZED (
  SELECT digest FROM distlock_row WHERE digest = %(key)s FOR UPDATE SKIP LOCKED),
drawn AS (
  INSERT INTO distlock_row_token AS t (digest, token) SELECT digest, {PG_NOW} FROM locked
  {_STORE})
SELECT drawn.token, {_SHOW} FROM drawn
UNION ALL
SELECT NULL, true FROM distlock_row
 WHERE digest = %(key)s AND NOT EXISTS (SELECT 1 FROM drawn)"""
# The clock is read for the row that the first part returns, and so after the wait.
WAIT: Final = f"""WITH locked AS MATERIALIZED (
  SELECT digest FROM distlock_row WHERE digest = %(key)s FOR UPDATE),
drawn AS (
  INSERT INTO distlock_row_token AS t (digest, token) SELECT digest, {PG_NOW} FROM locked
  {_STORE})
SELECT drawn.token, {_SHOW} FROM drawn"""

# What a session of our own is told once. The program's own limits would end a wait; a commit need
# not wait for the disk, because no lock outlives a crash of the server, and the clock, which
# tokens follow, goes on. The plan that is kept must be right for a large table, too.
SET_UP: Final = (
    "SET statement_timeout = 0",
    f"SET lock_timeout = {milliseconds(LONGEST_WAIT)}",
    "SET synchronous_commit = off",
    "SET default_transaction_isolation = 'read committed'",
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    # Not known before PostgreSQL 17.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'",
)
_PARAMETERS: Final = ("key", "owner", "note")
PREPARED: Final = {"note": NOTE, "lock": LOCK, "wait": WAIT}
# Behind a pooler the next transaction may be in another session, where none of that was said.
_SET_LOCAL: Final = (
    "SET LOCAL statement_timeout = 0",
    f"SET LOCAL lock_timeout = {milliseconds(LONGEST_WAIT)}",
    "SET LOCAL synchronous_commit = off",
)


def _prepare(name: str, sql: str) -> str:
    """Return what has the server parse and plan a statement once for a session."""
    for number, parameter in enumerate(_PARAMETERS, 1):
        sql = sql.replace(f"%({parameter})s", f"${number}")
    return f"PREPARE distlock_{name} (text, text, text) AS {sql}"


def _execute(name: str) -> str:
    return f"EXECUTE distlock_{name} (%(key)s, %(owner)s, %(note)s)"


# Looked for first: an INSERT would wait for the holder of a row that is there. The token is that of
# nobody, and says that the name has just been used.
MAKE: Final = f"""INSERT INTO distlock_row (digest, name, token, session, owner, note)
SELECT %(key)s::varchar, %(name)s::text, {PG_NOW}, 0, '', ''
 WHERE NOT EXISTS (SELECT 1 FROM distlock_row WHERE digest = %(key)s::varchar)
ON CONFLICT (digest) DO NOTHING"""
USED: Final = f"""UPDATE distlock_row_token SET token = greatest(token + 1, {PG_NOW})
 WHERE digest = %(key)s"""
HELD: Final = """
SELECT r.digest, r.name, s.owner, (t.classid::bigint << 32) | t.objid::bigint, s.note, s.session
  FROM distlock_row_session s
  JOIN distlock_row r ON r.digest = s.digest
  JOIN pg_locks x ON x.locktype = 'transactionid' AND x.transactionid = r.xmax
       AND x.pid = s.session AND x.mode = 'ExclusiveLock' AND x.granted
  JOIN pg_locks t ON t.locktype = 'advisory' AND t.pid = s.session AND t.objsubid = 1 AND t.granted
       AND t.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
END: Final = f"SELECT pg_terminate_backend(h.session::int) FROM ({HELD}) h WHERE"
# A question for each row and arrays, both looked up in the index, and no joins of the tables: a
# planner that knows little of them makes such joins loops in loops.
_USED: Final = """greatest(r.token, (
    SELECT t.token FROM distlock_row_token t WHERE t.digest = r.digest)) + 1"""
_GOES: Final = "digest = ANY(ARRAY(SELECT digest FROM idle))"
IDLE: Final = f"""
SELECT r.digest, x.transactionid IS NULL AND {_USED} <= {PG_NOW} - %(older)s
  FROM distlock_row r LEFT JOIN pg_locks x ON x.locktype = 'transactionid'
       AND x.transactionid = r.xmax AND x.mode = 'ExclusiveLock' AND x.granted
 WHERE r.digest > %(after)s ORDER BY r.digest LIMIT %(size)s"""
# Both, under the row's lock. Judged by the row and the token as they are then.
REMOVE: Final = f"""WITH locked AS MATERIALIZED (
  SELECT digest, token FROM distlock_row WHERE digest = ANY(%(keys)s) FOR UPDATE SKIP LOCKED),
idle AS MATERIALIZED (
  SELECT digest FROM locked r WHERE {_USED} <= {PG_NOW} - %(older)s),
token AS (DELETE FROM distlock_row_token WHERE {_GOES})
DELETE FROM distlock_row WHERE {_GOES}"""
TIDY: Final = """DELETE FROM distlock_row_session
 WHERE session NOT IN (SELECT pid FROM pg_stat_activity)"""


class RowPostgreSQL(RowDialect):
    """PostgreSQL's words."""

    def _given(self, claim: Claim) -> dict[str, Any]:
        return {**self.given(claim), "idle": milliseconds(claim.ttl)}

    def _is_direct(self, session: LockSession) -> bool:
        """Return whether statements can be prepared; the first time, prepare them."""
        if session.direct is None:
            session.direct = is_direct(session.connection)
            if session.direct:
                prepare = [_prepare(name, sql) for name, sql in PREPARED.items()]
                with session.connection.cursor() as cursor:
                    # Planned now: later that would be in the way of the others' order.
                    plan = "EXPLAIN EXECUTE distlock_wait ('', '', '')"
                    cursor.execute("; ".join([*SET_UP, *prepare, plan]))
        return session.direct

    def make(self, session: LockSession, claim: Claim) -> None:
        self._is_direct(session)  # which sets the level: at a higher one it may meet a conflict
        session.execute([MAKE], self.given(claim))

    def attempt(self, session: LockSession, claim: Claim) -> int | None:
        given = self._given(claim)
        if self._is_direct(session):
            statements = ["BEGIN", _execute("note"), "COMMIT AND CHAIN", _execute("lock")]
            if session.idle != given["idle"]:
                statements.insert(0, f"SET {_IDLE_LIMIT}")
        else:
            begin = ("BEGIN ISOLATION LEVEL READ COMMITTED", *_SET_LOCAL)
            statements = [*begin, NOTE, "COMMIT", *begin, f"SET LOCAL {_IDLE_LIMIT}", LOCK]
        row = session.execute(statements, given)
        session.idle = given["idle"]
        if row is None:
            raise Missing
        return None if row[0] is None else int(row[0])

    def send_wait(self, session: LockSession, claim: Claim) -> None:
        wait = _execute("wait") if self._is_direct(session) else WAIT
        session.send([wait], self.given(claim))

    def waited(self, session: LockSession, claim: Claim, row: Row | None) -> int | None:
        return None if row is None else int(row[0])

    def renew(self, session: LockSession, claim: Claim) -> None:
        session.execute([f"SET LOCAL {_IDLE_LIMIT}"], self._given(claim))

    def release(self, session: LockSession, claim: Claim, *, long: bool) -> None:
        if long:
            session.execute([USED, "COMMIT"], self.given(claim))
        else:
            session.execute(["COMMIT"], {})

    def cancel(self, session: LockSession, other: LockSession, limit: float) -> None:
        raw: Any = session.connection.connection
        with session.connection.wrap_database_errors:
            raw.cancel_safe(timeout=limit)

    def holder(self, session: LockSession, key: str) -> Row | None:
        rows = session.fetch(f"{HELD} WHERE r.digest = %(key)s", {"key": key})
        return rows[0] if rows else None

    def holders(self, session: LockSession, after: str, size: int) -> tuple[list[Row], str | None]:
        return session.fetch(HELD, {}), None

    def end(self, session: LockSession, key: str, owner: str) -> bool:
        rows = session.fetch(
            f"{END} h.digest = %(key)s AND h.owner = %(owner)s", {"key": key, "owner": owner}
        )
        return bool(rows and rows[0][0])

    def idle_rows(
        self, session: LockSession, after: str, size: int, older: int
    ) -> list[tuple[str, bool]]:
        rows = session.fetch(IDLE, {"after": after, "size": size, "older": older})
        return [(digest, bool(idle)) for digest, idle in rows]

    def remove(self, session: LockSession, digests: Sequence[str], older: int) -> int:
        return session.change(REMOVE, {"keys": list(digests), "older": older})

    def tidy(self, session: LockSession) -> None:
        session.change(TIDY, {})
