"""`lock_all`: several locks, all or none; `lock_for`: a lock named after a model instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, takewhile
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack, overload

from django.db.models import Model

from .core import flow
from .core.blocks import Guard
from .core.durations import UNSET, Wait, check_wait
from .core.flow import Flow
from .core.leaving import Leave, leave_all
from .core.several import acquire_some
from .decorators import Contention, Decorates, Name, check_contention
from .exceptions import InvalidLockError
from .handler import locks
from .lease import Lease
from .lock import Lock, LockOptions, MemberOptions, UseOptions, lock

if TYPE_CHECKING:
    from .lock import Skipping, SkippingAtomic, SkippingLock

__all__ = ["Leases", "LockGroup", "lock_all", "lock_for"]

D = TypeVar("D")


class Leases(tuple[Lease, ...]):
    """The leases of several locks in the order given; a context manager that releases them.

    Always true, also of no locks.
    """

    _taken: tuple[Lease, ...]  # in the order of acquiring

    @classmethod
    def _of(cls, taken: Sequence[Lease], places: Iterable[int]) -> Leases:
        """Return leases as they were acquired, by the places of their locks in the order given."""
        ordered = sorted(zip(places, taken, strict=True), key=itemgetter(0))
        made = cls(lease for _, lease in ordered)
        made._taken = tuple(taken)
        return made

    def __bool__(self) -> bool:
        return True

    def check(self) -> None:
        """Raise LeaseLostError once one of the leases may have expired."""
        for lease in self:
            lease.check()

    def release(self) -> None:
        """Free all the locks, the last taken first.

        Also when one of them cannot be freed. The first error is raised then: see `Lease.release`.
        """
        flow.run(self._release())

    async def arelease(self) -> None:
        """Free as `release`."""
        await flow.arun(self._release())

    def _release(self) -> Flow[None]:
        return self._leave(None, lambda lease, _, ahead: lease._release(ahead))

    def _leave(self, body_error: BaseException | None, leave: Leave = Lease._leave) -> Flow[None]:
        raised = yield from leave_all(self._taken, body_error, leave)
        try:
            if raised is not None:
                raise raised
        finally:
            raised = None  # it refers to this frame: see flow.run

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        flow.run(self._leave(exc))

    async def __aenter__(self) -> Self:
        self.check()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await flow.arun(self._leave(exc))

    def __reduce__(self) -> NoReturn:
        raise TypeError("Leases cannot be pickled: detach and attach each")


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class LockGroup(Guard[Leases], Decorates):
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

    def _leases(self, got: Leases) -> Sequence[Lease]:
        return got._taken

    def _cancelling(self, got: Leases) -> Sequence[Lease]:
        return [
            lease for member, lease in zip(self.locks, got, strict=True) if member.cancel_on_lost
        ]

    def _transaction_database(self, using: str | None) -> str | None:
        for member in self.locks:
            using = member._transaction_database(using)
        return using

    def _of_transaction(self) -> LockGroup:
        return replace(self, locks=tuple(replace(each, _xact=True) for each in self.locks))

    def _names(self) -> list[Name]:
        return [member.name for member in self.locks]

    def _bound_to(self, arguments: Mapping[str, Any]) -> LockGroup:
        members = tuple(each._bound_to(arguments) for each in self.locks)
        return replace(self, locks=members, on_contention="raise", default=None)

    def _in_order(self) -> list[tuple[int, Lock]]:
        """Return the members in the order of acquiring, which is the same in every process.

        One order everywhere is what keeps two groups from a deadlock
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

    def _obtain(self, wait: Wait) -> Flow[Leases]:
        self._refuse_contention()
        members = self._in_order()
        if not members:
            return Leases._of((), ())
        clock = locks[members[0][1].using].clock
        patience = self._patience(wait)
        deadline = None if patience is None else clock() + patience
        got: list[Lease] = []
        together = True
        try:
            while len(got) < len(members):
                left = None if deadline is None else max(0.0, deadline - clock())
                using = members[len(got)][1].using
                following = (member for _, member in members[len(got) :])
                some = islice(following, locks[using].at_once if together else 1)
                same = takewhile(lambda member, using=using: member.using == using, some)  # type: ignore[misc]
                asked = [each._acquisition(left, patience) for each in same]
                together = (yield from acquire_some(asked, got)) and together
            for lease in got:
                lease.check()  # one taken first may have run out while we waited for the last
            return Leases._of(got, (place for place, _ in members))
        except GeneratorExit:
            for lease in got:
                lease._drop()
            raise
        except BaseException as error:
            yield from leave_all(got, error)
            raise

    def _patience(self, wait: Wait) -> float | None:
        """Return the wait of the call, or else the group's, or else the shortest of a member."""
        given = self.wait if wait is UNSET else wait
        if given is not UNSET:
            return check_wait(given, alias=self.using)
        waits = [member._patience(UNSET, locks[member.using].conf) for member in self.locks]
        return min((each for each in waits if each is not None), default=None)


if TYPE_CHECKING:

    class SkippingLockGroup(Skipping[D], LockGroup):  # type: ignore[misc]
        """A LockGroup as it types a function that may return something else on contention."""

        def atomic(
            self, using: str | None = None, *, xact: bool = False
        ) -> SkippingAtomic[Leases, D]: ...


@overload
def lock_all(
    *names: str | Lock, on_contention: Literal["skip"], **options: Unpack[UseOptions]
) -> SkippingLockGroup[None]: ...
@overload
def lock_all(
    *names: str | Lock, on_contention: Literal["skip"], default: D, **options: Unpack[UseOptions]
) -> SkippingLockGroup[D]: ...
@overload
def lock_all(
    *names: str | Lock, on_contention: Callable[..., D], **options: Unpack[UseOptions]
) -> SkippingLockGroup[D]: ...
@overload
def lock_all(
    *names: str | Lock,
    using: str = ...,
    wait: Wait = ...,
    on_contention: Contention = ...,
    default: Any = ...,
    cancel_on_lost: bool = ...,
    **options: Unpack[MemberOptions],
) -> LockGroup: ...
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
    everywhere, so that two groups cannot wait for each other. A block gets `Leases`, a tuple in the
    order given, as `acquire` does. With ``cancel_on_lost`` the loss of any of them cancels the body
    of ``async with``, else that of a Lock that was made with it. Without a ``wait`` it is the
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


@overload
def lock_for(
    instance: Any, *, on_contention: Literal["skip"], **options: Unpack[UseOptions]
) -> SkippingLock[None]: ...
@overload
def lock_for(
    instance: Any, *, on_contention: Literal["skip"], default: D, **options: Unpack[UseOptions]
) -> SkippingLock[D]: ...
@overload
def lock_for(
    instance: Any, *, on_contention: Callable[..., D], **options: Unpack[UseOptions]
) -> SkippingLock[D]: ...
@overload
def lock_for(instance: Any, **options: Unpack[LockOptions]) -> Lock: ...
def lock_for(instance: Any, **options: Any) -> Lock:
    """Return a lock named after a saved model instance: app label, model and primary key.

    Takes the options of `lock`. Raises InvalidLockError when it has no primary key yet, or only
    parts of a composite one. With multi-table inheritance the child and its parent have locks of
    their own, although they share a row: take that of one of them everywhere.
    """
    if not isinstance(instance, Model):
        raise InvalidLockError(
            f"lock_for() takes a saved model instance; got {instance!r:.200}. "
            "For a model as a whole or a queryset, use lock() with a name of your own"
        )
    composite = isinstance(instance.pk, tuple)
    parts = instance.pk if composite else (instance.pk,)
    if None in parts:
        raise InvalidLockError("An instance without a primary key cannot name a lock: save it")
    words = [str(part) for part in parts]
    if composite:
        # So that no two keys run into one name: ("a,", "b") and ("a", ",b").
        words = [word.replace("\\", r"\\").replace(",", r"\,") for word in words]
    # The concrete model, so that a proxy or a deferred instance names the same row's lock.
    meta = (instance._meta.concrete_model or type(instance))._meta
    options.setdefault("label", f"{meta.label_lower}:{{pk}}")
    made: Lock = lock(f"{meta.label_lower}:{','.join(words)}", **options)
    return replace(made, _literal=True)
