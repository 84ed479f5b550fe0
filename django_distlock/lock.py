"""`Lock`: a name and options, used as a block, as a decorator, or by hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from .conf import AliasConf
from .core import flow
from .core.acquisition import Acquisition
from .core.blocks import Atomic, Guard
from .core.durations import UNSET, Duration, Unset, Wait, check_limit, check_ttl, check_wait
from .core.flow import Flow
from .core.names import check_label, check_name, label_of
from .core.values import LockInfo
from .decorators import (
    Contention,
    Decorates,
    Name,
    check_contention,
    check_filled,
    fill,
    refuse_bare,
)
from .exceptions import InvalidLockError
from .handler import locks
from .lease import Lease
from .transactions import Ask, is_pending, sweep

__all__ = ["Lock", "LockOptions", "MemberOptions", "lock"]

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
T = TypeVar("T")


@dataclass(frozen=True, init=False)
class Lock(Guard[Lease], Decorates):
    """A lock's name and options: a plain value, picklable, that holds no connection.

    One Lock may be shared by threads, tasks and decorators. See `lock` for the fields.
    """

    name: Name
    using: str = "default"
    ttl: Duration | Unset = UNSET
    wait: Wait = UNSET
    renew: bool | Unset = UNSET
    reentrant: bool | Unset = UNSET
    max_hold: Wait = UNSET
    min_hold: Duration | None = None
    shared: bool = False
    limit: int | None = None
    on_contention: Contention = "raise"
    # Compared, but not hashed: they may be lists or dicts.
    default: Any = field(default=None, hash=False)
    cancel_on_lost: bool = False
    metadata: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    # It says nothing of what the lock is, so it tells no two apart.
    label: str | None = field(default=None, compare=False)

    # Whether the name is made from data: then braces in it are no field of a template.
    _literal: bool = field(default=False, compare=False, repr=False)

    # Whether the caller's transaction is to hold it: see `Guard.atomic`.
    _xact: bool = field(default=False, repr=False)

    # By hand: the generated one of a frozen class takes three times as long, at each lock.
    def __init__(
        self,
        *,
        name: Name,
        using: str = "default",
        ttl: Duration | Unset = UNSET,
        wait: Wait = UNSET,
        renew: bool | Unset = UNSET,
        reentrant: bool | Unset = UNSET,
        max_hold: Wait = UNSET,
        min_hold: Duration | None = None,
        shared: bool = False,
        limit: int | None = None,
        on_contention: Contention = "raise",
        default: Any = None,
        cancel_on_lost: bool = False,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        _literal: bool = False,
        _xact: bool = False,
    ) -> None:
        plain = None if callable(name) else check_name(name, using)
        if ttl is not UNSET:
            check_ttl(ttl, name=plain, alias=using)
        if wait is not UNSET:
            check_wait(wait, name=plain, alias=using)
        if max_hold is not UNSET and max_hold is not None:
            check_ttl(max_hold, what="max_hold", name=plain, alias=using)
        if min_hold is not None:
            check_ttl(min_hold, what="min_hold", name=plain, alias=using)
        if shared or limit is not None:
            check_mode(shared, limit, plain, using)
        if on_contention != "raise":
            check_contention(on_contention, plain, using)
        if label is not None:
            check_label(label, plain, using)
        self.__dict__.update(
            name=name,
            using=using,
            ttl=ttl,
            wait=wait,
            renew=renew,
            reentrant=reentrant,
            max_hold=max_hold,
            min_hold=min_hold,
            shared=shared,
            limit=limit,
            on_contention=on_contention,
            default=default,
            cancel_on_lost=cancel_on_lost,
            metadata=metadata,
            label=label,
            _literal=_literal,
            _xact=_xact,
        )

    # -- what Guard and Decorates ask --------------------------------------------------------------

    def _leases(self, got: Lease) -> Sequence[Lease]:
        return (got,)

    def _label(self) -> tuple[str | None, str | None]:
        return (None if callable(self.name) else self.name), self.using

    def _transaction_database(self, using: str | None) -> str | None:
        database = locks[self.using].transaction_database()
        if using not in (None, database):
            raise InvalidLockError(
                f"xact=True holds the lock in database {database!r}, where the alias has its "
                f"locks: not in {using!r}",
                alias=self.using,
            )
        return database

    def _of_transaction(self) -> Lock:
        return replace(self, _xact=True)

    def _names(self) -> list[Name]:
        return [self.name]

    def _bound_to(self, arguments: Mapping[str, Any]) -> Lock:
        return self._filled(fill(self.name, arguments, self.using))

    def _filled(self, name: str, **others: Any) -> Lock:
        """Return the lock ``name``, which metrics call by our template."""
        label = self.label or label_of(self.name)
        # The caller, which fills the name, applies these two.
        options = {"on_contention": "raise", "default": None, "_literal": True, **others}
        return replace(self, name=name, label=label, **options)

    def _obtain(self, wait: Wait, owner: str | None = None) -> Flow[Lease]:
        """Return a flow that acquires, as a new owner or as the ``owner`` handed to us."""
        self._refuse_contention()
        return Acquisition(self, wait, owner=owner).flow()

    def _acquisition(self, left: float | None, patience: float | None) -> Acquisition:
        """Return one that may take ``left`` seconds of a wait of ``patience`` seconds."""
        return Acquisition(self, patience, left=left)

    def _obtain_now(self, wait: Wait) -> Lease:
        if self.on_contention != "raise" or self.default is not None:
            self._refuse_contention()
        return Acquisition(self, wait).run()

    async def _aobtain_now(self, wait: Wait) -> Lease:
        self._refuse_contention()
        return await Acquisition(self, wait).arun()

    def _patience(self, wait: Wait, conf: AliasConf) -> float | None:
        """Return the wait of the call, or else the lock's, or else that of the settings."""
        given = self.wait if wait is UNSET else wait
        if given is UNSET:
            return conf.wait
        return check_wait(given, name=self._plain_name(), alias=self.using)

    def _plain_name(self) -> str:
        if callable(self.name):
            raise InvalidLockError(
                "A callable name is for decorators, where there are arguments to call it with",
                alias=self.using,
            )
        if "{" in self.name and not self._literal:
            check_filled(self.name, self.using)
        return self.name

    # -- inspecting, and releasing by force --------------------------------------------------------

    def locked(self) -> bool:
        """Return whether the lock is held. The answer may be out of date when you read it."""
        return self.info() is not None

    async def alocked(self) -> bool:
        """Tell as `locked`."""
        return await self.ainfo() is not None

    def info(self) -> LockInfo | None:
        """Return the holder, the token and the times of the current grant; None when it is free.

        Of several holders that of the first; see `holders`. It may have changed when you read this.
        Raises LockBackendError when the store fails.
        """
        return flow.run(self._info())

    async def ainfo(self) -> LockInfo | None:
        """Return as `info`."""
        return await flow.arun(self._info())

    def _info(self) -> Flow[LockInfo | None]:
        name = self._plain_name()
        if is_pending():
            yield Ask(sweep)
        found: LockInfo | None = yield flow.Call(locks[self.using], "inspect", (name,), name)
        return found

    def holders(self) -> list[LockInfo]:
        """Return as `info` all who hold it: those who share it, or have a slot of its limit."""
        return flow.run(self._holders())

    async def aholders(self) -> list[LockInfo]:
        """Return as `holders`."""
        return await flow.arun(self._holders())

    def _holders(self) -> Flow[list[LockInfo]]:
        name = self._plain_name()
        if is_pending():
            yield Ask(sweep)
        return (yield from locks[self.using]._holders_of(name))

    def force_release(self, *, fencing_token: int | None = None) -> LockInfo:
        """Release the lock, whoever holds it, and return the holder's LockInfo.

        With ``fencing_token`` only that grant is broken, never a newer one; without it, the one
        that is seen first, also where several hold it. The holder learns of the loss by its next
        renewal. Raises LockNotHeldError when the lock is free, or held by another grant.
        """
        return locks[self.using].force_release(self._plain_name(), fencing_token=fencing_token)

    async def aforce_release(self, *, fencing_token: int | None = None) -> LockInfo:
        """Free as `force_release`."""
        name = self._plain_name()
        return await locks[self.using].aforce_release(name, fencing_token=fencing_token)


def check_mode(shared: Any, limit: Any, name: str | None, alias: str) -> None:
    """Raise InvalidLockError unless a lock is shared or has a limit, and not both."""
    if not isinstance(shared, bool):
        raise InvalidLockError(
            f"shared must be True or False, not {shared!r}", name=name, alias=alias
        )
    if limit is not None:
        check_limit(limit, name=name, alias=alias)
        if shared:
            raise InvalidLockError(
                "A lock is shared by any number of holders, or has a limit: leave one of them out",
                name=name,
                alias=alias,
            )


if TYPE_CHECKING:

    class Skipping(Generic[D]):
        """How a decorator types a function that may return something else on contention."""

        @overload
        def __call__(
            self, function: Callable[P, Coroutine[Any, Any, R]]
        ) -> Callable[P, Coroutine[Any, Any, R | D]]: ...
        @overload
        def __call__(self, function: Callable[P, R]) -> Callable[P, R | D]: ...
        def __call__(self, function: Any) -> Any: ...

    class SkippingLock(Skipping[D], Lock):  # type: ignore[misc]
        """A Lock as it types a function that may return something else on contention."""

        def atomic(
            self, using: str | None = None, *, xact: bool = False
        ) -> SkippingAtomic[Lease, D]: ...

    class SkippingAtomic(Skipping[D], Atomic[T], Generic[T, D]):  # type: ignore[misc]
        """A lock around a transaction, with such a function."""


class MemberOptions(TypedDict, total=False):
    """The options of `lock` that concern one of several locks."""

    ttl: Duration | Unset
    renew: bool | Unset
    reentrant: bool | Unset
    max_hold: Wait
    min_hold: Duration | None
    shared: bool
    limit: int | None
    metadata: Mapping[str, Any] | None
    label: str | None


class UseOptions(MemberOptions, total=False):
    """The options of `lock` but for what a decorated function does on contention."""

    using: str
    wait: Wait
    cancel_on_lost: bool


class LockOptions(UseOptions, total=False):
    """The options of `lock`."""

    on_contention: Contention
    default: Any


@overload
def lock(
    name: Name, *, on_contention: Literal["skip"], **options: Unpack[UseOptions]
) -> SkippingLock[None]: ...
@overload
def lock(
    name: Name, *, on_contention: Literal["skip"], default: D, **options: Unpack[UseOptions]
) -> SkippingLock[D]: ...
@overload
def lock(
    name: Name, *, on_contention: Callable[..., D], **options: Unpack[UseOptions]
) -> SkippingLock[D]: ...
@overload
def lock(
    name: Name,
    *,
    using: str = ...,
    ttl: Duration | Unset = ...,
    wait: Wait = ...,
    renew: bool | Unset = ...,
    reentrant: bool | Unset = ...,
    max_hold: Wait = ...,
    min_hold: Duration | None = ...,
    shared: bool = ...,
    limit: int | None = ...,
    on_contention: Contention = ...,
    default: Any = ...,
    cancel_on_lost: bool = ...,
    metadata: Mapping[str, Any] | None = ...,
    label: str | None = ...,
) -> Lock: ...
def lock(
    name: Name,
    *,
    using: str = "default",
    ttl: Duration | Unset = UNSET,
    wait: Wait = UNSET,
    renew: bool | Unset = UNSET,
    reentrant: bool | Unset = UNSET,
    max_hold: Wait = UNSET,
    min_hold: Duration | None = None,
    shared: bool = False,
    limit: int | None = None,
    on_contention: Contention = "raise",
    default: Any = None,
    cancel_on_lost: bool = False,
    metadata: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> Lock:
    """Return a lock, to be used by ``with``, ``async with``, as a decorator, or by ``acquire()``.

    - ``name``: any str of 1 to 10,000 characters. As a decorator a template over the call's
      arguments, such as ``"invoice:{invoice.pk}"``, or a callable that is given the arguments and
      returns the name.
    - ``using``: the alias in DISTLOCKS.
    - ``ttl``: seconds (from 0.01) or timedelta that the lock outlives a crashed holder.
    - ``wait``: seconds or timedelta to wait for it; 0 tries once, None waits without limit.
    - ``renew``: whether the watchdog renews it while it is held.
    - ``reentrant``: whether the same thread or task may take it again; the last release frees it.
    - ``max_hold``: seconds or timedelta after which it is not renewed any more; None: no limit.
    - ``min_hold``: seconds or timedelta from the grant on for which the name stays taken, though it
      is released or its holder crashes; the ttl is as long at least. For hosts whose clocks differ.
    - ``shared``: whether others that ask for it shared may hold it at the same time, as readers do;
      a claim without it is exclusive.
    - ``limit``: how many (1 to 1000) may hold it at once, each with a `Lease.slot` of its own; the
      same number wherever the name is used.
    - ``on_contention``, ``default``: what a decorated function does when the lock is not obtained:
      ``"raise"``, ``"skip"`` (return ``default``), or a callable that is given the
      LockNotAcquiredError and the call's arguments, and whose result is returned.
    - ``cancel_on_lost``: cancel the body of ``async with`` when the lease is lost.
    - ``metadata``: a dict that JSON can hold in 10,000 characters, shown beside the holder.
    - ``label``: what metrics call the lock, such as ``"invoice:{pk}"``; one of a few, so never with
      the id in it. Left out it is the template of a decorator, and nothing for a name given as it
      is.

    What is left out is as the alias's settings say. Raises InvalidLockError when out of range.
    """
    if callable(name):
        refuse_bare("lock", name)
    return Lock(
        name=name,
        using=using,
        ttl=ttl,
        wait=wait,
        renew=renew,
        reentrant=reentrant,
        max_hold=max_hold,
        min_hold=min_hold,
        shared=shared,
        limit=limit,
        on_contention=on_contention,
        default=default,
        cancel_on_lost=cancel_on_lost,
        metadata=metadata,
        label=label,
    )
