"""What the lock table asks of a database, as SQL text: `sql` has that of each.

Only constants are put together into SQL; whatever comes from outside is a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...core.durations import in_microseconds
from ...core.names import readable
from ...core.values import Claim, Grant, Refusal

__all__ = ["COLUMNS", "FIRST", "Dialect", "WaitQueueSql", "make_dialect", "patient", "qualified"]

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

Fetch = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]

TABLE: Final = "distlock_lock"
COLUMNS: Final = "digest, name, owner, token, acquired, expires, note"
FIRST: Final = 1

_FIELDS: Final = ("key", "name", "owner", "ttl", "note")
"""The parameters that are a claim's own, in a row of `Dialect.acquire_many`."""
_FIELD: Final = re.compile(rf"%\(({'|'.join(_FIELDS)})\)s")


@dataclass(frozen=True, slots=True)
class WaitQueueSql:
    """The lock of the server's own that waiters of a name queue for, see `wait_queue.py`.

    ``enter`` answers `FIRST` when none was before us, another number when one was, and 0 or an
    error when the time was up. ``parameters`` is given a digest in hexadecimal and the seconds to
    wait.
    """

    enter: str
    leave: str
    parameters: Callable[[str, float], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of one database.

    ``renew_many``, ``release_many`` and ``owners`` have lists of placeholders filled in, see
    `many`; so have ``remove``, see `removing`, and ``acquire_many``, with a ``row`` for each claim.
    That is an upsert everywhere, which tells nothing: ``owners`` tells who holds what then.

    Without RETURNING, ``acquire`` puts the token of a grant into LAST_INSERT_ID(), 0 for a refusal:
    the server sends it along with its answer.

    ``see`` reads a row, whatever its state, ``make`` makes one that is free, and ``swap`` writes
    one that is as it was seen; so does ``free``, where that gives up a lease.

    ``acquire_soon`` is acquire with a limit on how long the server waits for the row, which some
    transaction of another's may have locked: less than the servers' own limits (50 s on MariaDB,
    none on PostgreSQL), and an answer, while a driver that is cut off loses its session.

    ``clock`` adds parameters that the database cannot compute itself: SQLite's own clock has only
    milliseconds, which gave 633 early takeovers in a prototype, while all its users share the
    host's clock. It is read before the statement is sent, so a wait for the file only makes the
    grant shorter and the judgement of others' expiry later: both on the safe side.
    """

    acquire: str
    renew: str
    renew_many: str
    owners: str
    release: str
    release_many: str
    inspect: str
    scan: str
    expired: str
    page: str
    remove: str
    see: str
    swap: str
    free: str
    make: str
    make_soon: str
    acquire_many: str
    row: str
    acquire_soon: str = ""
    create: str = ""  # asked when acquire found no row, where acquire does not make one itself
    create_soon: str = ""
    look: str = ""  # asked by a loser whose acquire did not tell the holder
    clock: Callable[[], dict[str, Any]] = dict
    wait_queue: WaitQueueSql | None = None

    def parameters(self, claim: Claim) -> dict[str, Any]:
        """Return the parameters of release and look."""
        return {"key": claim.key, "owner": claim.owner, **self.clock()}

    def renewing(self, claim: Claim) -> dict[str, Any]:
        """Return the parameters of renew."""
        return {**self.parameters(claim), "ttl": in_microseconds(claim.ttl)}

    def acquiring(self, claim: Claim, name: str) -> dict[str, Any]:
        """Return the parameters of acquire; ``name`` is readable ASCII."""
        return {**self.renewing(claim), "name": name, "note": claim.note}

    def many(
        self, sql: str, claims: Sequence[Claim], ttl: float = 0.0
    ) -> tuple[str, dict[str, Any]]:
        """Return ``sql`` with a placeholder for each claim's key and owner, and the parameters."""
        keys = {f"k{i}": claim.key for i, claim in enumerate(claims)}
        owners = {f"o{i}": claim.owner for i, claim in enumerate(claims)}
        lists = {"keys": keys, "owners": owners}
        sql = sql.format(**{k: ", ".join(f"%({each})s" for each in v) for k, v in lists.items()})
        return sql, {"ttl": in_microseconds(ttl), **keys, **owners, **self.clock()}

    def acquiring_many(
        self, claims: Sequence[Claim], patience: float
    ) -> tuple[str, dict[str, Any]]:
        """Return ``acquire_many`` with a row for each claim, and the parameters.

        The server waits ``patience`` seconds for the rows that are locked, if it can be told to.
        """
        rows, given = [], self.clock() | patient(patience)
        for number, claim in enumerate(claims):
            rows.append(_FIELD.sub(rf"%(\g<1>{number})s", self.row))
            fields = self.acquiring(claim, readable(claim.name))
            given |= {f"{field}{number}": fields[field] for field in _FIELDS}
        return self.acquire_many.format(rows=", ".join(rows)), given

    def removing(self, keys: Sequence[str], older: int) -> tuple[str, dict[str, Any]]:
        """Return ``remove`` with a placeholder for each key, and the parameters."""
        named = {f"k{i}": key for i, key in enumerate(keys)}
        sql = self.remove.format(keys=", ".join(f"%({each})s" for each in named))
        return sql, {"older": older, **named, **self.clock()}

    def attempt(
        self,
        fetch: Fetch,
        claim: Claim,
        name: str,
        *,
        look_first: bool = False,
        patience: float | None = None,
    ) -> Grant | Refusal:
        """Run the acquire statement and read its answer: (owner or None, token, left, note).

        The server waits ``patience`` seconds for the row, by default as long as it is set to.

        With ``look_first`` (SQLite, for a name that was held when last asked for) it is only run
        when a read says that it may win: also a losing upsert asks for the file's write lock, and
        waiters that do so again and again are in the way of the holder's own transactions.
        """
        if look_first:
            held = self.refusal(fetch(self.look, self.parameters(claim)))
            if held is not None:
                return held
        parameters = self.acquiring(claim, name)
        acquire, create = self.acquire, self.create
        if patience is not None:
            parameters |= patient(patience)
            acquire, create = self.acquire_soon, self.create_soon
        rows = fetch(acquire, parameters)
        if not rows and create:
            rows = fetch(create, parameters) or fetch(acquire, parameters)
        if not rows and self.look:
            rows = fetch(self.look, parameters)
        if not rows:
            return Refusal()  # it was freed in between: try again soon
        owner, token, left, note = rows[0]
        if owner == claim.owner:
            return Grant(int(token), claim.ttl)
        return Refusal(max(0.0, int(left) / 1_000_000), str(note))

    def refusal(self, rows: list[tuple[Any, ...]]) -> Refusal | None:
        """Return the refusal that the row tells of, None if the lock is free."""
        if not rows or int(rows[0][2]) <= 0:
            return None
        return Refusal(int(rows[0][2]) / 1_000_000, str(rows[0][3]))


def qualified(statements: T, schema: str | None) -> T:
    """Return a dataclass of statements that name the table by its schema, if one is given.

    So the table is the same whatever the session's search_path is.
    """
    if schema is None:
        return statements
    texts = {each.name: getattr(statements, each.name) for each in fields(statements)}
    named = f'"{schema}".{TABLE}'  # of letters, digits and _ alone: see the option
    return replace(
        statements,
        **{key: text.replace(TABLE, named) for key, text in texts.items() if isinstance(text, str)},
    )


def patient(seconds: float) -> dict[str, Any]:
    """Return the parameters of a statement that limits the server's wait for a locked row."""
    milliseconds = max(1, round(seconds * 1000))
    return {"seconds": milliseconds / 1000, "milliseconds": str(milliseconds)}


_REMOVE: Final = "DELETE FROM distlock_lock WHERE digest IN ({keys}) AND "


def make_dialect(
    now: str,
    acquire: str,
    *,
    greatest: str = "greatest",
    remove: str = _REMOVE,
    empty: str = "''",
    text: str = "%({})s",
    haste: str = "",
    soon: str = "",
    **more: Any,
) -> Dialect:
    """Return a dialect; most of it differs only in how the database tells the time.

    ``empty`` is an empty string, ``text`` a parameter that may be one. With ``haste`` before it or
    ``soon`` after it the server waits for a locked row for a limited time only.
    """
    ours = f"digest = %(key)s AND owner = %(owner)s AND expires > {now}"
    # An owner belongs to one claim, so that the two lists cannot match crosswise.
    among = f"digest IN ({{keys}}) AND owner IN ({{owners}}) AND expires > {now}"
    # Idle for %(older)s: the last grant, and the release or expiry, are further back than that. The
    # token counts too, because it is ahead of the clock after the clock was set back: a row that
    # keeps such a token must stay until the clock has caught up, or the next token would be lower.
    idle = f"{greatest}(token + 1, abs(expires)) <= {now} - %(older)s"
    # Each grant changes the token, all else the expiry.
    swap = (
        f"{haste}UPDATE distlock_lock SET"  # noqa: S608
        f" owner = {text.format('owner')}, token = %(token)s, acquired = %(acquired)s,"
        f" expires = %(expires)s, name = %(name)s, note = {text.format('note')}"
        " WHERE digest = %(digest)s AND token = %(seen_token)s AND"
        f" expires = %(seen_expires)s{soon}"
    )
    select = f"SELECT {COLUMNS}, {now} FROM distlock_lock"  # noqa: S608 - constants, here and below
    return Dialect(
        acquire=acquire,
        renew=f"UPDATE distlock_lock SET expires = {now} + %(ttl)s WHERE {ours}",  # noqa: S608
        renew_many=f"UPDATE distlock_lock SET expires = {now} + %(ttl)s WHERE {among}",  # noqa: S608
        owners=f"SELECT owner, token FROM distlock_lock WHERE {among}",  # noqa: S608
        release=f"UPDATE distlock_lock SET owner = {empty}, expires = -{now}, note = {empty}"  # noqa: S608
        f" WHERE {ours}",
        release_many=f"UPDATE distlock_lock SET owner = {empty}, expires = -{now}, note = {empty}"  # noqa: S608
        f" WHERE {among}",
        see=f"{select} WHERE digest = %(key)s",
        swap=swap,
        free=swap,
        inspect=f"{select} WHERE digest = %(key)s AND expires > {now}",
        # By a constant, too: the planner does not know that most rows are free, and would go
        # through all of them in the order of the digests.
        scan=f"{select} WHERE digest > %(after)s AND expires > 0 AND expires > {now}"
        " ORDER BY digest LIMIT 500",
        expired=f"{select} WHERE digest > %(after)s AND owner <> {empty} AND expires > 0"
        f" AND expires <= {now} ORDER BY digest LIMIT 500",
        page=f"SELECT digest, CASE WHEN {idle} THEN 1 ELSE 0 END FROM distlock_lock"  # noqa: S608
        " WHERE digest > %(after)s ORDER BY digest LIMIT %(size)s",
        remove=remove + idle,
        **more,
    )
