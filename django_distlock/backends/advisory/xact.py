"""Locks of the caller's own transaction on PostgreSQL: `lock(...).atomic(xact=True)`.

``pg_advisory_xact_lock`` on the connection that has the transaction: the server frees the lock with
its commit or rollback. There is no second connection, no lease to renew, and no session that a
pooler could give to another client. The lock is the one that sessions take, so both exclude each
other.
"""

from __future__ import annotations

from typing import Final

from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.values import Claim, Grant, Refusal
from ...exceptions import UnsupportedOperationError
from ..row.dialect import milliseconds
from ..table.errors import state_of
from ..table.sql import PG_NOW
from .postgresql import RAISED, SEQUENCE, lock_of

__all__ = ["try_in_transaction", "wait_in_transaction"]

TRY: Final = f"""SELECT CASE WHEN pg_try_advisory_xact_lock<shared>(%(lock)s)
    THEN nextval({SEQUENCE}) END, {PG_NOW}, current_setting('transaction_isolation')"""
RAISE: Final = RAISED.replace("%(sequence)s", SEQUENCE)
LIMIT: Final = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
WAIT: Final = "SELECT pg_advisory_xact_lock<shared>(%s)"


class _Transaction:
    """The transaction that holds a lock: a lock is never lost before it, and ends with it."""

    in_testcase = False

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._block = connection.atomic_blocks[0]

    def open(self) -> bool:
        """Return whether the transaction still goes on."""
        return self._connection.atomic_blocks[:1] == [self._block]

    def undone(self) -> bool:
        """Return False: what was done under the lock is undone with it."""
        return False


def _in_mode(sql: str, claim: Claim) -> str:
    return sql.replace("<shared>", "_shared" if claim.shared else "")


def try_in_transaction(database: str, claim: Claim) -> Grant | Refusal:
    """Attempt once, in one round trip where the tokens are not behind the clock."""
    connection = connections[database]
    with connection.cursor() as cursor:
        cursor.execute(_in_mode(TRY, claim), {"lock": lock_of(claim.key)})
        token, now, isolation = cursor.fetchone()
    if not isolation.startswith("read "):
        raise UnsupportedOperationError(
            f"xact=True needs READ COMMITTED, and DATABASES[{database!r}] has {isolation.upper()}: "
            "the transaction would see the rows as they were before it had the lock. Leave xact "
            "out, and atomic() begins the transaction under the lock",
            name=claim.name,
        )
    if token is None:
        return Refusal(queue=True)
    if token < now:
        token = _raised(connection)
    return Grant(token, claim.ttl, _Transaction(connection))


def _raised(connection: BaseDatabaseWrapper) -> int:
    """Raise the tokens to the clock, and return one.

    Raising takes a lock of the transaction's, for which all others would wait until its end. The
    rollback to a savepoint frees it; what was done to a sequence stays.
    """
    with connection.cursor() as cursor:
        cursor.execute("SAVEPOINT distlock_token")
        try:
            cursor.execute(RAISE)
            (token,) = cursor.fetchone()
        finally:
            cursor.execute("ROLLBACK TO SAVEPOINT distlock_token")
            cursor.execute("RELEASE SAVEPOINT distlock_token")
    return int(token)


def wait_in_transaction(database: str, claim: Claim, limit: float) -> Grant | Refusal:
    """Wait in the server's queue for ``limit`` seconds."""
    try:
        # A savepoint, as the end of the wait is an error, which ends a transaction.
        with transaction.atomic(using=database), connections[database].cursor() as cursor:
            cursor.execute(LIMIT, [f"{milliseconds(limit)}ms"])
            before, _ = cursor.fetchone()
            cursor.execute(_in_mode(WAIT, claim), [lock_of(claim.key)])
            cursor.execute(LIMIT, [before])
    except OperationalError as error:
        if state_of(error.__cause__) != "55P03":
            raise
        return Refusal(queue=True)
    return try_in_transaction(database, claim)
