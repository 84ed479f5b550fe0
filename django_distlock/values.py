"""The values that travel between the layers. No settings, no input or output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from .text import shown

__all__ = [
    "Bound",
    "Claim",
    "CleanPolicy",
    "Cleaned",
    "Grant",
    "Holder",
    "LockInfo",
    "Note",
    "Refusal",
    "Sequencer",
    "doer_of",
    "user_of",
]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, for people. Never used to decide anything.

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
        parts = [f"{self.host or '?'} pid {self.pid}", doer_of(self), user_of(self), self.site]
        return shown(", ".join(part for part in parts if part))


def doer_of(holder: Holder) -> str:
    """Return the view, else the task, else the thread."""
    return holder.view or holder.task or holder.thread


def user_of(holder: Holder) -> str:
    """Return the user, said to be one: ``user ada``."""
    return f"user {holder.user}" if holder.user else ""


@dataclass(frozen=True, slots=True)
class Note:
    """What stands beside a lock in the store for people: the holder and the user's metadata."""

    holder: Holder = field(default_factory=Holder)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def dumps(self) -> str:
        """Return the note as ASCII JSON, which every store and character set takes."""
        h = self.holder
        note: dict[str, Any] = {"host": h.host, "pid": h.pid, "thread": h.thread}
        note |= {"task": h.task, "site": h.site, "view": h.view, "user": h.user}
        note["metadata"] = dict(self.metadata)
        return _encode({k: v for k, v in note.items() if v})

    @classmethod
    def loads(cls, text: str | None) -> Note:
        """Read a note, taking anything: what stands in the store may be foreign or damaged."""
        try:
            raw = _decode(text or "{}")
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(raw, dict):
            return cls()
        get = raw.get
        words = [get(key, "") for key in ("host", "thread", "task", "site", "view", "user")]
        host, thread, *others = [each if isinstance(each, str) else "" for each in words]
        pid, metadata = get("pid", 0), get("metadata", {})
        if not isinstance(pid, int) or isinstance(pid, bool):
            pid = 0
        holder = Holder(host, pid, thread, *others)
        return cls(holder, metadata if isinstance(metadata, dict) else {})


@dataclass(frozen=True, slots=True)
class Claim:
    """One acquisition, from its first attempt to its release: the same value for every call.

    The owner is drawn before the first attempt, so that a repeated, late or unanswered call is
    harmless and can be undone.
    """

    name: str
    key: str
    owner: str = field(repr=False)
    ttl: float
    note: str = field(default="", repr=False)


_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


class Bound(Protocol):
    """A transaction of the caller's that a grant is part of, and with which it may vanish."""

    in_testcase: bool
    """Whether it is one of Django's `TestCase`, which nobody outside ever sees."""

    def open(self) -> bool:
        """Tell whether the transaction still goes on."""
        ...

    def undone(self) -> bool:
        """Tell whether the transaction was rolled back."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """The store's yes: the fencing token, and for how many seconds from the asking it holds.

    ``bound`` is set when the grant was written inside the caller's own transaction: nobody else
    sees it before the commit, so only the caller's thread can renew or release it.
    """

    fencing_token: int
    valid_for: float
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The store's no, with what it told at no extra cost.

    ``remaining`` is the holder's ttl left in seconds and ``note`` the holder's note; both are
    hints, and None or empty where the store does not tell. ``queue`` says that the store has a
    queue to wait in.
    """

    remaining: float | None = None
    note: str = ""
    queue: bool = False


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A held lock, as the store shows it: for people, never for decisions.

    ``waiters`` is None where the store does not know. ``waiting`` are those who wait, the next one
    first and a hundred at most, where the store shows them. ``owner`` is the secret by which the
    lock can be released, and is not shown.
    """

    name: str
    holder: Holder
    fencing_token: int | None
    acquired_at: datetime
    expires_at: datetime | None
    waiters: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    owner: str = field(default="", repr=False, compare=False)
    waiting: tuple[Holder, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Sequencer:
    """By what somebody else can ask Consul whether a holder holds its lock still.

    He reads ``key``: the lock is held as long as its LockIndex and its Session are these.
    """

    key: str
    lock_index: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPolicy:
    """What a cleaning removes: names that nobody has held for ``older_than`` seconds.

    A ``dry_run`` only counts. ``batch`` is how many entries one call to the store may look at.
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
