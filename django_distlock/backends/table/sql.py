"""The statements of the lock table, one dialect a database.

Every acquire is one guarded statement: it grants when the row is free, expired or already ours,
draws the token after the row is locked, and a losing attempt writes nothing. (On PostgreSQL another
one makes the row of a name that has none.) A release or renewal is one UPDATE that compares the
owner. The clock is the database's, in microseconds since 1970.

A row is held while ``expires`` is ahead of the clock. A release writes the time, made negative: the
row is then free whatever the clock does next, and tells since when it has been idle.

Only the constants below are put together into SQL; whatever comes from outside is a parameter.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

from .dialect import COLUMNS, WaitQueueSql, make_dialect

__all__ = [
    "MARIADB",
    "MYSQL",
    "MY_EMPTY",
    "MY_NOTE",
    "MY_NOW",
    "MY_PATIENCE",
    "PG_NOW",
    "PG_PATIENCE",
    "POSTGRESQL",
    "POSTGRESQL_HASTY",
    "SQLITE",
]

PG_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_PG_WAIT_QUEUE: Final = WaitQueueSql(
    # The limit ends with the transaction, which is this statement. CASE goes from first to last.
    enter="SELECT CASE WHEN set_config('lock_timeout', %(limit)s, true) IS NULL THEN 0"
    " WHEN pg_try_advisory_lock(%(wait_queue)s) THEN 1"
    " WHEN pg_advisory_lock(%(wait_queue)s)::text IS NOT NULL THEN 2 END",
    leave="SELECT pg_advisory_unlock(%(wait_queue)s)",
    parameters=lambda digest, seconds: {
        "wait_queue": int(digest[:16], 16) >> 1,  # a bigint has 63 bits and a sign
        "limit": f"{max(1, round(seconds * 1000))}ms",
    },
)

# Rows that somebody is about to take are left to him. An array, so that it is made once and looked
# up in the index: a join of two parts of the table, about which the planner knows little after a
# large cleaning, became a loop in a loop (24 s for 10,000 rows, and 0.05 s so).
_PG_REMOVE: Final = """
DELETE FROM distlock_lock WHERE digest = ANY(ARRAY(
  SELECT digest FROM distlock_lock WHERE digest IN ({keys}) FOR UPDATE SKIP LOCKED))
   AND """

# clock_timestamp(), because now() is the start of the transaction. An UPDATE that finds the row
# held does not lock it. One that had to wait for the row judges it again, and reads the clock
# again: the token of a waiter is never older than that of the holder whom it waited for. The loser
# is told what stood there before.
_PG_ACQUIRE: Final = f"""
WITH won AS (
  UPDATE distlock_lock AS l SET
    token = CASE WHEN owner = %(owner)s::varchar THEN token ELSE greatest(token + 1, {PG_NOW}) END,
    acquired = CASE WHEN owner = %(owner)s::varchar THEN acquired ELSE {PG_NOW} END,
    name = %(name)s::text, note = %(note)s::text, owner = %(owner)s::varchar,
    expires = {PG_NOW} + %(ttl)s::bigint
  WHERE digest = %(key)s::varchar AND (owner = %(owner)s::varchar OR expires <= {PG_NOW})
  RETURNING owner, token)
SELECT won.owner, won.token, expires - {PG_NOW}, note
  FROM distlock_lock LEFT JOIN won ON true WHERE digest = %(key)s::varchar"""  # noqa: S608

# Another may make the row meanwhile: then this does nothing, and acquire is asked again.
_PG_CREATE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
SELECT %(key)s::varchar, %(name)s::text, %(owner)s::varchar,
       {PG_NOW}, {PG_NOW}, {PG_NOW} + %(ttl)s::bigint, %(note)s::text
ON CONFLICT (digest) DO NOTHING
RETURNING owner, token, 0::bigint, ''::text"""


# Unlike `_PG_ACQUIRE` it makes the rows that there are not, and locks those that are held.
_PG_ROW: Final = (
    "(%(key)s::varchar, %(name)s::text, %(owner)s::varchar, %(ttl)s::bigint, %(note)s::text)"
)
_PG_ACQUIRE_MANY: Final = f"""
INSERT INTO distlock_lock AS l ({COLUMNS})
SELECT asked.digest, asked.name, asked.owner, {PG_NOW}, {PG_NOW}, {PG_NOW} + ttl, asked.note
  FROM (VALUES {{rows}}) AS asked (digest, name, owner, ttl, note)
 WHERE set_config('lock_timeout', %(milliseconds)s::text, true) IS NOT NULL
ON CONFLICT (digest) DO UPDATE SET
  token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE greatest(l.token + 1, {PG_NOW}) END,
  acquired = CASE WHEN l.owner = excluded.owner THEN l.acquired ELSE {PG_NOW} END,
  name = excluded.name, note = excluded.note, owner = excluded.owner,
  expires = {PG_NOW} + excluded.expires - excluded.acquired
WHERE l.owner = excluded.owner OR l.expires <= {PG_NOW}"""  # noqa: S608

# For this transaction only, which is this statement. Judged for the row that is found, or is to be
# inserted, so before it, or the one in its way, is locked.
PG_PATIENCE: Final = "set_config('lock_timeout', %(milliseconds)s::text, true) IS NOT NULL"

# The same for this transaction, which is this statement, so that it costs no round trip and is no
# property of the session: its commit does not wait for the disk (nor for a standby).
_PG_HASTE: Final = "set_config('synchronous_commit', 'off', true) IS NOT NULL"

_MAKE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
VALUES (%(key)s, %(name)s, '', %(fresh)s, 0, 0, '')"""  # noqa: S608 - constants, here and below
_NOTHING: Final = " ON CONFLICT (digest) DO NOTHING"

_PG_MAKE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
SELECT %(key)s::varchar, %(name)s::text, '', %(fresh)s::bigint, 0, 0, ''"""

_PG: Final = make_dialect(
    PG_NOW,
    remove=_PG_REMOVE,
    soon=f" AND {PG_PATIENCE}",
    make=_PG_MAKE + _NOTHING,
    make_soon=f"{_PG_MAKE} WHERE {PG_PATIENCE}{_NOTHING}",
    acquire=_PG_ACQUIRE,
    acquire_soon=_PG_ACQUIRE.replace("WHERE", f"WHERE {PG_PATIENCE} AND", 1),
    create=_PG_CREATE,
    create_soon=_PG_CREATE.replace("ON CONFLICT", f"WHERE {PG_PATIENCE} ON CONFLICT", 1),
    acquire_many=_PG_ACQUIRE_MANY,
    row=_PG_ROW,
    wait_queue=_PG_WAIT_QUEUE,
)

# Nobody relies on a release: the next grant, which waits for the disk, takes it there as well, and
# one that a crash has undone is over with its ttl.
POSTGRESQL: Final = replace(
    _PG,
    release=f"{_PG.release} AND {_PG_HASTE}",
    release_many=f"{_PG.release_many} AND {_PG_HASTE}",
    free=f"{_PG.free} AND {_PG_HASTE}",
)

POSTGRESQL_HASTY: Final = replace(
    POSTGRESQL,
    acquire=POSTGRESQL.acquire.replace("WHERE", f"WHERE {_PG_HASTE} AND", 1),
    acquire_soon=POSTGRESQL.acquire_soon.replace("WHERE", f"WHERE {_PG_HASTE} AND", 1),
    create=POSTGRESQL.create.replace("ON CONFLICT", f"WHERE {_PG_HASTE} ON CONFLICT", 1),
    create_soon=POSTGRESQL.create_soon.replace("WHERE", f"WHERE {_PG_HASTE} AND", 1),
    acquire_many=POSTGRESQL.acquire_many.replace("WHERE", f"WHERE {_PG_HASTE} AND", 1),
    swap=f"{POSTGRESQL.swap} AND {_PG_HASTE}",
    renew=f"{POSTGRESQL.renew} AND {_PG_HASTE}",
    renew_many=f"{POSTGRESQL.renew_many} AND {_PG_HASTE}",
)

MY_NOW: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

# An empty string in every sql_mode: EMPTY_STRING_IS_NULL makes NULL of '' in a statement.
MY_EMPTY: Final = "SPACE(0)"
MY_TEXT: Final = f"COALESCE(%({{}})s, {MY_EMPTY})"
MY_NOTE: Final = MY_TEXT.format("note")

_MY_ROW: Final = (
    f"(%(key)s, %(name)s, %(owner)s, {MY_NOW}, {MY_NOW}, {MY_NOW} + %(ttl)s, {MY_NOTE})"
)

# UTC_TIMESTAMP is the same everywhere in a statement, so that all IFs agree, and knows no daylight
# saving. MariaDB assigns from left to right, or all at once by the sql_mode SIMULTANEOUS_ASSIGNMENT
# (part of ORACLE): the expiry is judged by the new owner or by the old expiry, and either is right.
_MY_ACQUIRE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
VALUES {_MY_ROW}
ON DUPLICATE KEY UPDATE
  token = IF(owner <> VALUES(owner) AND expires <= {MY_NOW},
             GREATEST(token + 1, VALUES(token)), token),
  acquired = IF(owner <> VALUES(owner) AND expires <= {MY_NOW}, VALUES(acquired), acquired),
  name = IF(expires <= {MY_NOW}, VALUES(name), name),
  note = IF(expires <= {MY_NOW}, VALUES(note), note),
  owner = IF(expires <= {MY_NOW}, VALUES(owner), owner),
  expires = IF(owner = VALUES(owner) OR expires <= {MY_NOW}, VALUES(expires), expires)
RETURNING owner, token, expires - {MY_NOW}, note"""  # noqa: S608 - constants

_MY_MAKE: Final = _MAKE.replace("''", MY_EMPTY) + " ON DUPLICATE KEY UPDATE digest = digest"

# Of the limits only this one takes parts of a second.
MY_PATIENCE: Final = "SET STATEMENT max_statement_time = %(seconds)s FOR"

MARIADB: Final = make_dialect(
    MY_NOW,
    empty=MY_EMPTY,
    text=MY_TEXT,
    haste=f"{MY_PATIENCE} ",
    make=_MY_MAKE,
    make_soon=MY_PATIENCE + _MY_MAKE,
    acquire=_MY_ACQUIRE,
    acquire_soon=MY_PATIENCE + _MY_ACQUIRE,
    acquire_many=MY_PATIENCE + _MY_ACQUIRE.replace(_MY_ROW, "{rows}"),
    row=_MY_ROW,
    wait_queue=WaitQueueSql(
        enter="SELECT IF(GET_LOCK(%(wait_queue)s, 0), 1, 2 * GET_LOCK(%(wait_queue)s, %(limit)s))",
        leave="SELECT RELEASE_LOCK(%(wait_queue)s)",
        parameters=lambda digest, seconds: {
            "wait_queue": f"distlock:{digest[:40]}",
            "limit": seconds,
        },
    ),
)

# MySQL has no RETURNING. The VALUES are computed even where there is a row, so a refusal takes the
# number back. MySQL assigns from left to right.
_WON: Final = f"(distlock_lock.owner = new.owner OR distlock_lock.expires <= {MY_NOW})"
_FREE: Final = f"distlock_lock.expires <= {MY_NOW}"
_MYSQL_ROW: Final = (
    f"(%(key)s, %(name)s, %(owner)s, LAST_INSERT_ID({MY_NOW}), {MY_NOW}, {MY_NOW} + %(ttl)s, "
    f"{MY_NOTE})"
)
_MYSQL_ACQUIRE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
VALUES {_MYSQL_ROW} AS new
ON DUPLICATE KEY UPDATE
  token = IF({_WON},
             LAST_INSERT_ID(IF(distlock_lock.owner = new.owner, distlock_lock.token,
                               GREATEST(distlock_lock.token + 1, new.token))),
             distlock_lock.token + 0 * LAST_INSERT_ID(0)),
  acquired = IF(distlock_lock.owner <> new.owner AND {_FREE}, new.acquired,
                distlock_lock.acquired),
  name = IF({_FREE}, new.name, distlock_lock.name),
  note = IF({_FREE}, new.note, distlock_lock.note),
  owner = IF({_FREE}, new.owner, distlock_lock.owner),
  expires = IF({_WON}, new.expires, distlock_lock.expires)"""  # noqa: S608 - constants
MYSQL: Final = make_dialect(
    MY_NOW,
    empty=MY_EMPTY,
    text=MY_TEXT,
    make=_MY_MAKE,
    make_soon=_MY_MAKE,  # a statement that writes cannot be given a limit there
    acquire=_MYSQL_ACQUIRE,
    acquire_many=_MYSQL_ACQUIRE.replace(_MYSQL_ROW, "{rows}"),
    row=_MYSQL_ROW,
    look=f"SELECT owner, token, expires - {MY_NOW}, note FROM distlock_lock"  # noqa: S608
    " WHERE digest = %(key)s",
    wait_queue=WaitQueueSql(
        # GET_LOCK() rounds its limit to whole seconds.
        enter="SELECT /*+ MAX_EXECUTION_TIME(%(limit)s) */"
        " IF(GET_LOCK(%(wait_queue)s, 0), 1, 2 * GET_LOCK(%(wait_queue)s, 86400))",
        leave="SELECT RELEASE_LOCK(%(wait_queue)s)",
        parameters=lambda digest, seconds: {
            "wait_queue": f"distlock:{digest[:40]}",
            "limit": max(1, round(seconds * 1000)),
        },
    ),
)


def _host_clock() -> dict[str, Any]:
    return {"now": time.time_ns() // 1000}


_SQLITE_ROW: Final = "(%(key)s, %(name)s, %(owner)s, %(now)s, %(now)s, %(now)s + %(ttl)s, %(note)s)"
_SQLITE_ACQUIRE: Final = f"""
INSERT INTO distlock_lock ({COLUMNS})
VALUES {_SQLITE_ROW}
ON CONFLICT (digest) DO UPDATE SET
  token = CASE WHEN owner = excluded.owner THEN token ELSE max(token + 1, excluded.token) END,
  acquired = CASE WHEN owner = excluded.owner THEN acquired ELSE excluded.acquired END,
  name = excluded.name, note = excluded.note,
  owner = excluded.owner, expires = excluded.expires
WHERE owner = excluded.owner OR expires <= excluded.acquired
RETURNING owner, token, 0, ''"""  # noqa: S608 - constants
SQLITE: Final = make_dialect(
    "%(now)s",
    make=_MAKE + _NOTHING,
    make_soon=_MAKE + _NOTHING,
    acquire=_SQLITE_ACQUIRE,
    acquire_many=_SQLITE_ACQUIRE.replace(_SQLITE_ROW, "{rows}"),
    row=_SQLITE_ROW,
    greatest="max",
    look="""
SELECT NULL, 0, expires - %(now)s, note FROM distlock_lock
 WHERE digest = %(key)s AND owner <> %(owner)s""",
    clock=_host_clock,
)
