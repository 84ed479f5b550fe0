"""The values that travel between the layers. No settings, no input or output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .text import shown

__all__ = [
    "Bound",
    "Claim",
    "CleanPolicy",
    "Cleaned",
    "Grant",
    "Holder",
    "HolderInfo",
    "LockInfo",
    "Refusal",
    "doer_of",
    "moment",
    "noted",
    "user_of",
]


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, for people. Never used to decide anything.

    The fields are as the store has them; ``str(holder)`` is safe to print: one printable line.
    """

    host: str = ""
    pid: int = 0
    thread: str = ""
    task: str = ""
    site: str = ""
    view: str = ""
    user: str = ""

    def __str__(self) -> str:
        if self == _UNKNOWN:
            return "an unknown holder"
        parts = [f"{self.host or '?'} pid {self.pid}", doer_of(self), user_of(self), self.site]
        return shown(", ".join(part for part in parts if part))


_UNKNOWN = Holder()


def doer_of(holder: Holder) -> str:
    """Return the view, else the task, else the thread."""
    return holder.view or holder.task or holder.thread


def user_of(holder: Holder) -> str:
    """Return the user, said to be one: ``user ada``."""
    return f"user {holder.user}" if holder.user else ""


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """What is stored beside a lock for people: the holder and the user's metadata.

    And the ``ttl`` that was asked for, whether the holder renews it, the ``min_hold`` for which it
    stays taken in any case, and how it is held: see `Claim`.
    """

    holder: Holder = field(default_factory=Holder)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ttl: float | None = None
    renewed: bool = True
    min_hold: float | None = None
    shared: bool = False
    limit: int | None = None

    def dumps(self) -> str:
        """Return the holder info as ASCII JSON, which every store and character set takes."""
        h = self.holder
        note: dict[str, Any] = {"host": h.host, "pid": h.pid, "thread": h.thread}
        note |= {"task": h.task, "site": h.site, "view": h.view, "user": h.user}
        note |= {"metadata": dict(self.metadata), "ttl": self.ttl, "min_hold": self.min_hold}
        note |= {"shared": self.shared, "limit": self.limit}
        note = {k: v for k, v in note.items() if v}
        return encode(note if self.renewed else {**note, "renewed": False})

    @classmethod
    def loads(cls, text: str | None) -> HolderInfo:
        """Read holder info, taking anything: what is in the store may be foreign or damaged."""
        try:
            raw = _decode(text or "{}")
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(raw, dict):
            return cls()
        get = raw.get
        pid, metadata, limit = get("pid", 0), get("metadata"), get("limit")
        if not isinstance(pid, int) or isinstance(pid, bool):
            pid = 0
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            limit = None
        host, *others = [each if isinstance(each, str) else "" for each in map(get, _WORDS)]
        metadata = metadata if isinstance(metadata, dict) else {}
        ttl, min_hold = _seconds(get("ttl")), _seconds(get("min_hold"))
        holder = Holder(host, pid, *others)
        renewed, shared = get("renewed") is not False, get("shared") is True
        return cls(holder, metadata, ttl, renewed, min_hold, shared, limit)


class Claim(NamedTuple):
    """One acquisition, from its first attempt to its release: the same value for every call.

    The owner is drawn before the first attempt, so that a repeated, late or unanswered call is
    harmless and can be undone.
    """

    name: str
    key: str
    owner: str
    ttl: float
    note: str = ""
    in_transaction: bool = False
    """Whether the caller's transaction is to hold it: `BaseLockBackend.transaction_database`."""
    shared: bool = False
    """Whether others that share it may hold it, too."""
    limit: int = 0
    """How many may hold it at once; 0: it has no limit, and one alone holds what is not shared."""
    waits: bool = False
    """Whether the caller waits when it is refused."""

    @property
    def is_exclusive(self) -> bool:
        """Whether no other may hold it."""
        return not (self.shared or self.limit)

    def __repr__(self) -> str:  # the owner is a secret
        return f"Claim(name={self.name!r}, key={self.key!r}, ttl={self.ttl!r})"


def _seconds(given: object) -> float | None:
    """Return what the holder info says in seconds, if it does."""
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < 1e9:
        return None
    return given


encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_WORDS = ("host", "thread", "task", "site", "view", "user")
"""The words of the holder info, in the order of the holder's."""


class Bound(Protocol):
    """A transaction of the caller's that a grant is part of, and with which it may vanish."""

    in_testcase: bool
    """Whether it is one of Django's `TestCase`, which no other connection ever sees."""

    def open(self) -> bool:
        """Return whether the transaction still goes on."""
        ...

    def undone(self) -> bool:
        """Return whether the transaction was rolled back."""
        ...


class Grant(NamedTuple):
    """The store's yes: the fencing token, and for how many seconds from the asking it holds.

    The token is 0 on a backend without fencing tokens. ``bound`` is set when the grant was written
    inside the caller's own transaction: no other session sees it before the commit, so only the
    caller's thread can renew or release it. ``slot`` is the holder's number, below the limit of a
    claim that has one. ``asked`` is when it was asked for, by the backend's clock, where the caller
    did not ask: of a grant that was made in the queue.
    """

    fencing_token: int
    valid_for: float
    bound: Bound | None = None
    slot: int | None = None
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The store's no, with what it told at no extra cost.

    ``remaining`` is the holder's ttl left in seconds and ``note`` the holder info; both are
    hints, and None or empty where the store does not tell. ``queue`` says that the store has a
    queue to wait in. ``other_limit`` is the limit by which others hold it (0: by none), where that
    is another one than the claim's: no wait helps against that.
    """

    remaining: float | None = None
    note: str = ""
    queue: bool = False
    other_limit: int | None = None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> datetime | None:
    """Return a time as a store has it; None where that is none: what is stored may be damaged."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


class _Unread:
    """A note that is read when the holder or the metadata is asked for: of many, of few."""

    __slots__ = ("_note", "_owner")
    _note: str
    _owner: str

    @property
    def owner(self) -> str:
        """The secret by which the lock can be released; no field, so that no copy has it."""
        return self._owner

    if not TYPE_CHECKING:  # else any name would be an attribute

        def __getattr__(self, name: str) -> Any:
            """Fill the slots of what the holder info says, which are empty still."""
            if name not in _READ:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            note = HolderInfo.loads(self._note)
            for each in fields(note):
                object.__setattr__(self, each.name, getattr(note, each.name))
            return getattr(note, name)


_READ = frozenset(each.name for each in fields(HolderInfo))


@dataclass(frozen=True, slots=True)
class LockInfo(_Unread):
    """A held lock, as the store shows it: for people, never for decisions.

    ``ttl`` is the number of seconds that the holder has asked for, None if it is not known,
    ``renewed`` whether its process renews the lease, and ``min_hold`` the seconds from the grant on
    for which the lock stays taken in any case. Of a lock that several may hold, ``shared`` or
    ``limit`` says how, and ``slot`` is the holder's. ``waiters`` is None where the store does not
    know.
    ``waiting`` are the waiters, the next one first and a hundred at most, where the store shows
    them. What the store does not tell is None, and an empty Holder; `age` is then None, too. The
    ``owner``, the secret that releases the lock, is not a field: neither ``repr`` nor
    ``dataclasses.asdict`` shows it.
    """

    name: str
    holder: Holder = Holder()
    fencing_token: int | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    waiters: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    owner: InitVar[str] = ""
    waiting: tuple[Holder, ...] = field(default=(), compare=False)
    ttl: float | None = None
    renewed: bool = True
    min_hold: float | None = None
    shared: bool = False
    limit: int | None = None
    slot: int | None = None

    def __post_init__(self, owner: str) -> None:
        object.__setattr__(self, "_owner", owner)

    def age(self, now: datetime) -> float | None:
        """Return for how many seconds it has been held; None where the store does not tell."""
        since = self.acquired_at
        return None if since is None else max(0.0, (now - since).total_seconds())

    def held_until(self) -> datetime | None:
        """Return when its min_hold is over; None without one, or where its begin is not told."""
        if self.acquired_at is None or self.min_hold is None:
            return None
        return self.acquired_at + timedelta(seconds=self.min_hold)


delattr(LockInfo, "owner")  # the default of the argument, which hides the property


def _state(info: LockInfo) -> list[Any]:
    return [*(getattr(info, each.name) for each in fields(info)), info.owner]


def _set_state(info: LockInfo, state: list[Any]) -> None:
    names = [*(each.name for each in fields(info)), "_owner"]
    for name, value in zip(names, state, strict=True):
        object.__setattr__(info, name, value)


# Not in its body: before 3.11.4, Python replaces what stands there by its own, without the owner.
LockInfo.__getstate__ = _state  # type: ignore[assignment, method-assign]
LockInfo.__setstate__ = _set_state  # type: ignore[attr-defined]


def noted(
    note: str,
    *,
    name: str,
    fencing_token: int | None,
    acquired_at: datetime | None,
    expires_at: datetime | None,
    owner: str,
    waiters: int | None = None,
    waiting: tuple[Holder, ...] = (),
    slot: int | None = None,
) -> LockInfo:
    """Return a LockInfo that reads its holder info, most of the work, when it is asked for it."""
    info = object.__new__(LockInfo)
    fill = object.__setattr__  # as the frozen class does itself
    fill(info, "_note", note)
    fill(info, "name", name)
    fill(info, "fencing_token", fencing_token)
    fill(info, "acquired_at", acquired_at)
    fill(info, "expires_at", expires_at)
    fill(info, "waiters", waiters)
    fill(info, "_owner", owner)
    fill(info, "waiting", waiting)
    fill(info, "slot", slot)
    return info


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPolicy:
    """What a cleaning removes: names that were not held for ``older_than`` seconds.

    A ``dry_run`` only counts. ``batch`` is how many entries one call to the store may read.
    """

    older_than: float
    dry_run: bool = False
    batch: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a cleaning did: the entries that it ``removed``, and those that it has ``seen``.

    A dry run says under ``removed`` what it would have removed. After one batch ``cursor`` is where
    the next one begins; it is None when there is no more.
    """

    removed: int = 0
    seen: int = 0
    cursor: str | None = None
