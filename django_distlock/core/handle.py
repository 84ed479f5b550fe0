"""The text by which a lease that was detached is attached, in any process: JSON."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass

from ..exceptions import InvalidLockError, UnsupportedOperationError
from ..handler import locks
from . import fork
from .durations import check_ttl, check_wait
from .hold import Hold
from .values import Claim, Grant

__all__ = ["read", "write"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Handle:
    """What the text tells of a lease."""

    alias: str
    name: str
    owner: str
    ttl: float
    token: int
    note: str
    renewing: bool
    max_hold: float | None
    min_hold: float
    held_for: float
    label: str | None
    process: str | None  # where a lease ends with the process that took it
    shared: bool
    limit: int
    slot: int | None

    def check(self) -> None:
        """Raise ValueError if this cannot have been a lease's."""
        words = (self.alias, self.name, self.owner, self.note)
        typed = (
            all(isinstance(each, str) for each in words)
            and all(isinstance(each, str | None) for each in (self.label, self.process))
            and all(isinstance(each, bool) for each in (self.renewing, self.shared))
            and all(type(each) is int for each in (self.token, self.limit))
            and (self.slot is None or type(self.slot) is int)
        )
        if not typed or not self.name or None in (self.min_hold, self.held_for):
            raise ValueError("not of a lease")
        check_ttl(self.ttl)
        if self.max_hold is not None:
            check_ttl(self.max_hold)
        check_wait(self.min_hold)
        check_wait(self.held_for)


def write(hold: Hold) -> str:
    """Return the text for a lease that was detached; whoever has it can release the lock."""
    claim, backend = hold.claim, hold.backend
    handle = Handle(
        alias=backend.alias,
        name=claim.name,
        owner=claim.owner,
        ttl=hold.relied_on(claim.ttl, backend.clock()),
        token=hold.fencing_token,
        note=claim.note,
        renewing=hold.renewing,
        max_hold=hold.max_hold,
        min_hold=hold.min_hold,
        held_for=hold.held_for(),
        label=hold.label,
        process=None if backend.transferable else fork.process(),
        shared=claim.shared,
        limit=claim.limit,
        slot=hold.slot,
    )
    return json.dumps([VERSION, *astuple(handle)])


def read(text: str) -> Hold:
    """Return the hold that ``text`` tells of, which has to be renewed now.

    Raises InvalidLockError if `write` cannot have made it, UnsupportedOperationError if the lease
    ends with the process that took it, and that is another one.
    """
    try:
        version, *told = json.loads(text)
        handle = Handle(*told)
        if version != VERSION:
            raise ValueError("of another version")
        handle.check()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidLockError("This is no handle that Lease.detach() gave") from error
    name, alias = handle.name, handle.alias
    backend = locks[alias]
    fork.check()
    if not backend.transferable and handle.process != fork.process():
        raise UnsupportedOperationError(
            "A lease of this backend ends with the process that took it, and cannot be handed "
            "to another one: release it there, or use another backend",
            name=name,
            alias=alias,
        )
    claim = Claim(
        name,
        backend.key(name),
        handle.owner,
        handle.ttl,
        handle.note,
        shared=handle.shared,
        limit=handle.limit,
    )
    now = backend.clock()
    return Hold(
        backend,
        claim,
        Grant(handle.token, handle.ttl, slot=handle.slot),
        deadline=now + handle.ttl,
        acquired=now - handle.held_for,
        renewing=handle.renewing,
        max_hold=handle.max_hold,
        min_hold=handle.min_hold,
        label=handle.label,
    )
