"""`lock_all`: several locks, all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Unpack

from .decorators import Contention, Decorates, Name, check_contention
from .durations import UNSET, Wait, check_wait
from .exceptions import InvalidLockError
from .flow import Flow
from .guard import Guard, leave_all
from .handler import locks
from .lease import Lease
from .lock import Lock, MemberOptions, lock

__all__ = ["LockGroup", "lock_all"]


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class LockGroup(Guard[tuple[Lease, ...]], Decorates):
    """Several locks acquired as one; a plain value, as `Lock` is. Made by `lock_all`."""

    locks: tuple[Lock, ...]
    wait: Wait = UNSET
    on_contention: Contention = "raise"
    default: Any = field(default=None, hash=False)
    cancel_on_lost: bool = False  # whether that of a member is
    using: str = "default"

    def __post_init__(self) -> None:
        check_contention(self.on_contention, alias=self.using)
        for member in self.locks:
            member._refuse_contention()

    def _leases(self, got: tuple[Lease, ...]) -> Sequence[Lease]:
        return [got[place] for place, _ in self._in_order()] if got else got

    def _cancelling(self, got: tuple[Lease, ...]) -> Sequence[Lease]:
        return [
            lease for member, lease in zip(self.locks, got, strict=True) if member.cancel_on_lost
        ]

    def _names(self) -> list[Name]:
        return [member.name for member in self.locks]

    def _bound_to(self, arguments: Mapping[str, Any]) -> LockGroup:
        members = tuple(each._bound_to(arguments) for each in self.locks)
        return replace(self, locks=members, on_contention="raise", default=None)

    def _in_order(self) -> list[tuple[int, Lock]]:
        """Return the members in the order of acquiring, which is the same in every process.

        One order everywhere is what keeps two groups from waiting for each other for ever
        (Havender 1968, "Avoiding deadlock in multitasking systems").
        """
        keyed = []
        for place, member in enumerate(self.locks):
            key = locks[member.using].key(member._plain_name())
            keyed.append(((member.using, key), place, member))
        keyed.sort(key=lambda item: item[0])
        for (before, _, _), (after, _, member) in pairwise(keyed):
            if before == after:
                name, alias = member._label()
                raise InvalidLockError("lock_all is given a lock twice", name=name, alias=alias)
        return [(place, member) for _, place, member in keyed]

    def _obtain(self, wait: Wait) -> Flow[tuple[Lease, ...]]:
        self._refuse_contention()
        members = self._in_order()
        if not members:
            return ()
        backend = locks[members[0][1].using]
        patience = self._patience(wait)
        deadline = None if patience is None else backend.clock() + patience
        got: dict[int, Lease] = {}
        try:
            for place, member in members:
                left = None if deadline is None else max(0.0, deadline - backend.clock())
                got[place] = yield from member._obtain_in(left, patience)
            for lease in got.values():
                lease.check()  # one taken first may have run out while we waited for the last
        except GeneratorExit:
            for lease in got.values():
                lease._drop()
            raise
        except BaseException as error:
            yield from leave_all(list(got.values()), error)
            raise
        return tuple(got[place] for place in range(len(self.locks)))

    def _patience(self, wait: Wait) -> float | None:
        """Return the wait of the call, or else the group's, or else the shortest of a member."""
        given = self.wait if wait is UNSET else wait
        if given is not UNSET:
            return check_wait(given, alias=self.using)
        waits = [member._patience(UNSET) for member in self.locks]
        return min((each for each in waits if each is not None), default=None)


def lock_all(
    *names: str | Lock,
    using: str = "default",
    wait: Wait = UNSET,
    on_contention: Contention = "raise",
    default: Any = None,
    cancel_on_lost: bool = False,
    **options: Unpack[MemberOptions],
) -> LockGroup:
    """Return several locks as one: all are obtained or none, within one ``wait``.

    ``names`` are names or Locks, which may be of different aliases; they are acquired in one order
    everywhere, so that two groups cannot wait for each other. A block gets the tuple of leases in
    the order given. With ``cancel_on_lost`` the loss of any of them cancels the body of
    ``async with``, else that of a Lock that was made with it. Without a ``wait`` it is the
    shortest one of the members. The other options are those of `lock`, for the members given by
    name. Raises InvalidLockError when a lock is given twice, and for options that no member heeds.
    """
    if names and all(isinstance(each, Lock) for each in names):
        idle = [*options, *(["using"] if using != "default" else [])]
        if idle:
            raise InvalidLockError(
                f"lock_all() was given Lock objects only, so {', '.join(idle)} would have no "
                "effect: give the options to lock()",
                alias=using,
            )
    members = tuple(
        each if isinstance(each, Lock) else lock(each, using=using, **options) for each in names
    )
    if wait is not UNSET:
        check_wait(wait, alias=using)
    if cancel_on_lost:
        members = tuple(replace(each, cancel_on_lost=True) for each in members)
    return LockGroup(
        locks=members,
        wait=wait,
        on_contention=on_contention,
        default=default,
        cancel_on_lost=any(each.cancel_on_lost for each in members),
        using=using,
    )
