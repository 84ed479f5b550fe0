"""Locks that several hold at once, in one row of the lock table: read, and compared and set.

The holders are stored as the row's holder info, and `SEVERAL` as its owner. Each change has a new
token, so that two that go by the same read cannot both be made. The statements of a lock that one
holds alone know nothing of this: to them the row is held until its last lease ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DataError, IntegrityError

from ...core.members import Members
from ...core.names import readable
from ...core.values import Claim, Grant, Refusal
from .errors import Outrun
from .statements import Row, Seen, Statements

__all__ = ["SEVERAL", "join", "keep_out", "leave", "renew", "rows_of", "told"]

T = TypeVar("T")

SEVERAL: Final = "*"
"""The owner of a row that several hold; an owner is drawn, and never this."""

TURNS = 5  # times that a row is read again when others were faster

Decided: TypeAlias = "tuple[Members | None, T]"


def join(
    statements: Statements, connection: BaseDatabaseWrapper, claim: Claim, patience: float
) -> Grant | Refusal:
    """Attempt once for a lock that several may hold."""

    def decide(seen: Seen, members: Members, token: int) -> Decided[Grant | Refusal]:
        if seen.held() and seen.owner != SEVERAL:
            other = 0 if claim.limit else None
            return None, replace(seen.refusal(), other_limit=other)
        joined = members.joined(claim, seen.now, token)
        if isinstance(joined, Refusal):
            return None, joined
        return joined, joined.grant(claim)

    error: IntegrityError | None = None
    for _ in range(TURNS):
        answer = _change(statements, connection, claim, patience, decide)
        if answer is not None:
            return answer
        error = statements.make(connection, claim, patience)
    raise Outrun("its row can be neither seen nor made") from error


def renew(
    statements: Statements, connection: BaseDatabaseWrapper, claim: Claim, patience: float
) -> bool:
    """Begin a holder's ttl again; who holds it alone, by a claim that shares it, shares it then."""

    def decide(seen: Seen, members: Members, token: int) -> Decided[bool]:
        if seen.owner == claim.owner and seen.held():
            members = Members.of_one(claim, seen.token, seen.acquired, seen.expires)
        if members.of(claim.owner) is None:
            return None, False
        return members.renewed(claim, seen.now), True

    return bool(_change(statements, connection, claim, patience, decide))


def leave(
    statements: Statements, connection: BaseDatabaseWrapper, claim: Claim, patience: float
) -> bool:
    """Free what a holder has."""

    def decide(seen: Seen, members: Members, token: int) -> Decided[bool]:
        if seen.owner == claim.owner and seen.held():
            return Members(), True
        if members.of(claim.owner) is None:
            return None, False
        return members.without(claim.owner), True

    return bool(_change(statements, connection, claim, patience, decide, frees=True))


def keep_out(
    statements: Statements, connection: BaseDatabaseWrapper, claim: Claim, patience: float
) -> None:
    """Note that an exclusive claim waits, so that no other shares the lock for a while."""

    def decide(seen: Seen, members: Members, token: int) -> Decided[bool]:
        return members.awaited(claim, seen.now) if members.all else None, True

    with suppress(Outrun):  # a hint: who was faster may have let it in
        _change(statements, connection, claim, patience, decide)


def told(claim: Claim, refusal: Refusal) -> Refusal:
    """Return what an exclusive claim is told that met a row of several."""
    members = Members.loads(refusal.note) if Members.are_in(refusal.note) else None
    if members is None:
        return refusal
    note = members.all[0].note if members.all else ""
    return replace(refusal, note=note, other_limit=members.limit or None)


def _change(
    statements: Statements,
    connection: BaseDatabaseWrapper,
    claim: Claim,
    patience: float,
    decide: Callable[[Seen, Members, int], Decided[T]],
    *,
    frees: bool = False,
) -> T | None:
    """Write what ``decide`` makes of the living holders, and return its answer; None: no row."""
    for _ in range(TURNS):
        seen = statements.look(connection, claim.key)
        if seen is None:
            return None
        token = max(seen.token + 1, seen.now)
        changed, answer = decide(seen, _members_of(seen).living(seen.now), token)
        if changed is None:
            return answer
        new = _row(seen, changed, token, claim)
        if statements.swap(connection, seen, new, patience, frees=frees):
            return answer
    raise Outrun(f"others changed its row each of {TURNS} times that it was read")


def _members_of(seen: Seen) -> Members:
    if seen.owner != SEVERAL:
        return Members()
    found = Members.loads(seen.note)
    if found is None and seen.held():
        raise DataError("who holds it cannot be read: its row was written by another program")
    return found or Members()


def _row(seen: Seen, members: Members, token: int, claim: Claim) -> Seen:
    """Return the row of these holders; without any it is free, and may keep out sharers still."""
    wanted = members.wanted > seen.now
    return replace(
        seen,
        name=readable(claim.name),
        owner=SEVERAL if members.all or wanted else "",
        token=token,
        acquired=members.all[0].acquired if members.all else seen.acquired,
        expires=members.ends() if members.all else -seen.now,
        note=members.dumps() if members.all or wanted else "",
    )


def rows_of(row: Row) -> list[Row]:
    """Return a row for each holder of a row, with its slot behind.

    Of a row that is held of those whose lease lasts, else of all, whose leases ran out.
    """
    digest, name, owner, _, _, expires, note, now = row
    if owner != SEVERAL:
        return [row]
    members = Members.loads(note) or Members()
    if expires > now:
        members = members.living(int(now))
    return [
        (digest, name, m.owner, m.token, m.acquired, m.expires, m.note, now, m.slot)
        for m in members.all
    ]
