# ruff: noqa: S608 - only constants are put together into SQL
"""Advisory locks of sessions on PostgreSQL.

Tokens are drawn from the sequence of the holders' table, by CASE after the grant: it waits for no
disk, and is raised to the clock when it lags, so that a change from another backend of this
database to this one finds greater tokens. A crash of the server may have it fall back by what was
drawn in the last second. So each of our sessions shares one more lock, ALIVE: a session
that is alone with it follows a crash or a restart, and raises the sequence before any token is
drawn.
"""

from __future__ import annotations

from typing import Any, Final

from ...core.values import Claim
from ...exceptions import InvalidLockBackendError
from ..row.dialect import LONGEST_WAIT, milliseconds
from ..row.session import Row
from ..table.connection import is_direct
from ..table.sql import PG_NOW
from . import checks
from .dialect import COLUMNS, AdvisoryDialect
from .session import AdvisorySession

__all__ = ["RAISED", "SEQUENCE", "AdvisoryPostgreSQL", "lock_of"]

_LONGEST_LIMIT: Final = 2_147_483_647
SET_UP: Final = (
    "SET statement_timeout = 0",
    f"SET lock_timeout = {milliseconds(LONGEST_WAIT)}",
    "SET synchronous_commit = off",
    "SET default_transaction_isolation = 'read committed'",
    # Not known before PostgreSQL 17.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'",
    # Without it the server does not notice the end of a waiting client. Not all systems can.
    "SELECT set_config('client_connection_check_interval', '5s', false)"
    " WHERE version() LIKE '%linux%'",
)
SEQUENCE: Final = "pg_get_serial_sequence('distlock_advisory', 'token')"
# More than can have been drawn in the time for which a crash forgets.
_BEYOND: Final = 16_384
ALIVE: Final = "1684632436, 1"
RAISING: Final = "1684632436, 2"
RAISE: Final = f"greatest(last_value + {_BEYOND}, {PG_NOW})"
# Ahead of the clock by some milliseconds, so that most tokens are drawn without raising it.
_AHEAD: Final = 5000
# Each part is what the one around it is made of, and so comes before it. One at a time raises: who
# draws meanwhile is behind the clock, too, and waits for its turn.
RAISED: Final = f"""SELECT CASE WHEN token >= now THEN token
    ELSE setval(%(sequence)s, now + {_AHEAD}) END
  FROM (SELECT nextval(%(sequence)s) AS token, {PG_NOW} AS now
    FROM (SELECT pg_advisory_xact_lock({RAISING}) OFFSET 0) AS alone OFFSET 0) AS second"""
TOKEN: Final = f"""SELECT CASE WHEN token >= now THEN token ELSE ({RAISED}) END
  FROM (SELECT nextval(%(sequence)s) AS token, {PG_NOW} AS now OFFSET 0) AS first"""
TRY: Final = "SELECT CASE WHEN pg_try_advisory_lock($1) THEN (<token>) END"
TRY_SHARED: Final = TRY.replace("advisory_lock", "advisory_lock_shared")
# A session that shares a lock would be let in before a writer that waits.
JOIN: Final = """SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND NOT l.granted AND l.mode = 'ExclusiveLock'
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = $1) THEN (<token>) END"""
WAIT: Final = ("SELECT pg_advisory_lock(%(lock)s::bigint)", "EXECUTE distlock_token")
WAIT_SHARED: Final = (WAIT[0].replace("advisory_lock", "advisory_lock_shared"), WAIT[1])
UNLOCK: Final = "SELECT pg_advisory_unlock($1)"
UNLOCK_SHARED: Final = "SELECT pg_advisory_unlock_shared($1)"
# Whoever holds a lock is granted a share of it at once, before those that wait.
DOWNGRADE: Final = """SELECT pg_advisory_lock_shared(%(lock)s::bigint)::text,
  pg_advisory_unlock(%(lock)s::bigint)"""
LOOK: Final = """SELECT string_agg(owner, ',')
  FROM distlock_advisory WHERE session = $1 AND forced <> 0"""
# IS TRUE keeps the locks a set, which each row is looked up in: of a join, a planner that knows
# little of the table makes a loop over its rows for each lock.
HELD: Final = """
SELECT h.digest, h.name, h.owner, h.token, h.note, h.session, h.acquired
  FROM distlock_advisory h
 WHERE ((h.lock_key, h.session) IN (
    SELECT ((l.classid::bigint << 32) | l.objid::bigint)::text, l.pid
      FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   )) IS TRUE"""
HOLDER: Final = f"{HELD} AND h.digest = %(digest)s ORDER BY h.token DESC"
IS_HELD: Final = """SELECT 1 FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = %(lock)s::bigint"""
INSERT: Final = f"""INSERT INTO distlock_advisory ({COLUMNS}, forced)
VALUES (%(token)s, %(digest)s, %(name)s, %(owner)s, %(note)s, %(lock)s, %(session)s,
        {PG_NOW} - %(age)s, 0)
ON CONFLICT DO NOTHING"""
_ENDED: Final = "session NOT IN (SELECT pid FROM pg_stat_activity)"
TIDY: Final = f"DELETE FROM distlock_advisory WHERE {_ENDED}"


def lock_of(key: str) -> int:
    """Return the number of 64 bits by which the server knows the lock of a key."""
    return int.from_bytes(bytes.fromhex(key[:16]), "big", signed=True)


class AdvisoryPostgreSQL(AdvisoryDialect):
    """PostgreSQL's words."""

    one = HOLDER
    row = INSERT
    gone = "DELETE FROM distlock_advisory WHERE token = ANY(%(tokens)s)"
    leftovers = TIDY
    ended = _ENDED
    unit = 0.001

    def lock_of(self, session: AdvisorySession, key: str) -> str:
        return str(lock_of(key))

    def limit_of(self, ttl: float) -> int:
        return min(milliseconds(ttl), _LONGEST_LIMIT)

    def begin(self, session: AdvisorySession) -> None:
        if not is_direct(session.connection):
            raise InvalidLockBackendError(checks.pooled(session.connection.alias))
        raw: Any = session.connection.connection
        session.number = raw.info.backend_pid
        with session.connection.cursor() as cursor:
            for sql in SET_UP:
                cursor.execute(sql)
            cursor.execute(f"SELECT {SEQUENCE}")
            (sequence,) = cursor.fetchone()  # quoted as a name in a statement has to be
            name = "'" + sequence.replace("'", "''") + "'::regclass"
            cursor.execute(f"SELECT pg_try_advisory_lock({ALIVE})")
            alone = cursor.fetchone() == (True,)
            if alone:
                cursor.execute(f"SELECT setval({name}, {RAISE}) FROM {sequence}")
            cursor.execute(f"SELECT pg_advisory_lock_shared({ALIVE})")
            if alone:
                cursor.execute(f"SELECT pg_advisory_unlock({ALIVE})")
            token = TOKEN.replace("%(sequence)s", name)
            for word, kind, sql in (
                ("try", "(bigint)", TRY.replace("<token>", token)),
                ("try_shared", "(bigint)", TRY_SHARED.replace("<token>", token)),
                ("join", "(bigint)", JOIN.replace("<token>", token)),
                ("token", "", f"SELECT ({token})"),
                ("unlock", "(bigint)", UNLOCK),
                ("unlock_shared", "(bigint)", UNLOCK_SHARED),
                ("look", "(int)", LOOK),
            ):
                cursor.execute(f"PREPARE distlock_{word} {kind} AS {sql}")
        session.direct = True

    def set_limit(self, session: AdvisorySession) -> None:
        session.execute(
            ["SELECT set_config('idle_session_timeout', %(limit)s, false)"],
            {"limit": str(session.limit)},
        )
        session.idle = session.limit

    def send_try(self, session: AdvisorySession, lock: str, claim: Claim) -> None:
        session.send_prepared(f"distlock_try{'_shared' if claim.shared else ''}", lock)

    def send_join(self, session: AdvisorySession, lock: str) -> None:
        session.send_prepared("distlock_join", lock)

    def send_unlock(self, session: AdvisorySession, lock: str, *, shared: bool) -> None:
        session.send_prepared(f"distlock_unlock{'_shared' if shared else ''}", lock)

    def send_wait(self, session: AdvisorySession, lock: str, claim: Claim) -> None:
        session.send(WAIT_SHARED if claim.shared else WAIT, {"lock": lock})

    def downgrade(self, session: AdvisorySession, lock: str) -> None:
        session.execute([DOWNGRADE], {"lock": lock})

    def send_look(self, session: AdvisorySession) -> None:
        session.send_prepared("distlock_look", str(session.number))

    def freed(self, row: Row | None) -> bool:
        return row is not None and row[0] in (b"t", True)

    def cancel(self, session: AdvisorySession, other: AdvisorySession, limit: float) -> None:
        raw: Any = session.connection.connection
        with session.connection.wrap_database_errors:
            raw.cancel_safe(timeout=limit)

    def holders(
        self, session: AdvisorySession, after: str, size: int
    ) -> tuple[list[Row], str | None]:
        return session.fetch(HELD, {}), None

    def is_held(self, session: AdvisorySession, lock: str) -> bool:
        return bool(session.fetch(IS_HELD, {"lock": lock}))

    def end(self, session: AdvisorySession, number: int) -> None:
        session.fetch("SELECT pg_terminate_backend(%(number)s)", {"number": number})
