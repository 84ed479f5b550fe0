"""What is stored in Consul: the keys of a name, the record of its lock, and how both are read.

And since when a record is unchanged, by which a live holder is told from a crashed one.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ...core.clock import Clock
from ...core.names import readable
from ...core.threads import Mutex

__all__ = [
    "ConsulRecord",
    "KeyValue",
    "Liveness",
    "Paths",
    "Share",
    "State",
    "encode",
    "entry_of",
    "folder",
    "number_of",
    "pair_of",
    "stands_for",
    "state_of",
]

PROTOCOL: Final = "1"
"""Stands in the keys, so that two releases of the app can run side by side."""
LONG: Final = 10_000  # from so many bytes on a record is packed
MOST: Final = 20_000  # records of which is known since when they are unchanged
PACKED: Final = b"\0z"


@dataclass(frozen=True, slots=True)
class Paths:
    """The keys of one name; put together when asked for, as each lease would keep all of them."""

    start: str
    """The folder of the alias."""
    key: str
    """That of the claim: 64 hexadecimal digits, of which 40 are enough."""

    @property
    def all(self) -> str:
        """What they begin with."""
        return f"{self.start}{self.key[:40]}/"

    @property
    def lock(self) -> str:
        return f"{self.all}lock"

    @property
    def guard(self) -> str:
        """What each grant of a lock writes that several may hold."""
        return f"{self.all}several"

    @property
    def shares(self) -> str:
        """What the keys of those begin with who hold it together."""
        return f"{self.all}h/"

    def share(self, owner: str) -> str:
        """Return the key of one of them."""
        return f"{self.shares}{quote(owner, safe='')}"

    @property
    def mark(self) -> str:
        """The mark of a queue, which no claim passes by; its value is the last waiter."""
        return f"{self.all}queue"

    @property
    def queue(self) -> str:
        """What the keys of those in the queue begin with."""
        return f"{self.all}w/"


def folder(root: str, prefix: str) -> str:
    """Return what all keys of an alias begin with; other PREFIXes have folders of their own."""
    digest = hashlib.sha256(prefix.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{root}/{PROTOCOL}/{digest[:16]}/"


@dataclass(frozen=True, slots=True)
class ConsulRecord:
    """The value of the key by which a lock is held, alone or with others."""

    owner: str
    beat: int
    """Counts the renewals: whoever watches sees by it that the holder lives."""
    ttl: float
    since: int
    """In ms of the holder's clock, as the next: for people."""
    at: int
    token: int | None = None
    """None in the first record of a grant, whose ModifyIndex it is."""
    name: str = ""
    note: str = ""
    slot: int | None = None

    def dumps(self) -> bytes:
        """Return the record as it is stored."""
        # Written by hand, as it is written for each grant.
        token = "" if self.token is None else f'"t":{self.token},'
        slot = "" if self.slot is None else f'"n":{self.slot},'
        head = f'{{"o":{encode(self.owner)},"b":{self.beat},"l":{self.ttl},{token}{slot}'
        times = f'"s":{self.since},"a":{self.at},'
        raw = (head + times + _words(self.name, self.note)).encode("ascii")
        if len(raw) < LONG:
            return raw
        return PACKED + zlib.compress(raw, 1)

    @classmethod
    def loads(cls, raw: bytes | None) -> ConsulRecord | None:
        """Read a record; None when it is none of ours."""
        try:
            if raw is not None and raw.startswith(PACKED):
                raw = zlib.decompress(raw[len(PACKED) :])
            data: Any = json.loads(raw or b"null")
            token, slot, ttl = data.get("t"), data.get("n"), float(data["l"])
            if not math.isfinite(ttl):
                return None
            return cls(
                owner=str(data["o"]),
                beat=int(data["b"]),
                ttl=ttl,
                since=int(data["s"]),
                at=int(data["a"]),
                token=None if token is None else int(token),
                name=str(data["name"]),
                note=str(data["note"]),
                slot=None if slot is None else int(slot),
            )
        except _DAMAGED:
            return None


_DAMAGED: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    zlib.error,
)
encode = json.JSONEncoder(separators=(",", ":")).encode


@functools.lru_cache(256)
def _words(name: str, note: str) -> str:
    return f'"name":{encode(readable(name))},"note":{encode(note)}}}'


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key of Consul as it answers."""

    key: str
    value: bytes
    session: str
    created: int
    index: int
    lock_index: int


def pair_of(raw: Any) -> KeyValue:
    """Read one key of an answer."""
    return KeyValue(
        key=raw["Key"],
        value=base64.b64decode(raw.get("Value") or ""),
        session=raw.get("Session") or "",
        created=raw["CreateIndex"],
        index=raw["ModifyIndex"],
        lock_index=raw["LockIndex"],
    )


class Share(NamedTuple):
    """What a holder has: the lock's key, or one of its own beside others; and its record."""

    pair: KeyValue
    record: ConsulRecord

    @property
    def token(self) -> int:
        """The fencing token."""
        return self.pair.index if self.record.token is None else self.record.token


@dataclass(frozen=True, slots=True)
class State:
    """All keys in Consul of one name."""

    lock: KeyValue | None
    record: ConsulRecord | None
    mark: KeyValue | None
    queue: Sequence[KeyValue]
    """The waiters, in the order in which they came; the holder may be the first of them."""
    index: int = 1
    """From which on changes can be watched."""
    guard: KeyValue | None = None
    shares: Sequence[Share] = ()
    """Of those who hold it together; some may be dead."""

    @property
    def held(self) -> bool:
        """Whether a session has the lock; its holder's time may be over anyway."""
        return self.lock is not None and self.lock.session != ""

    @property
    def limit(self) -> int:
        """How many may hold it, where several hold it; 0: any number."""
        return 0 if self.guard is None else number_of(self.guard.value.partition(b" ")[0])

    @property
    def alone(self) -> Share | None:
        """What the holder has, where one holds it alone."""
        if not self.held or self.lock is None or self.record is None:
            return None
        return Share(self.lock, self.record)

    def of(self, owner: str) -> Share | None:
        """Return what an owner has."""
        held = self.shares if self.alone is None else (self.alone, *self.shares)
        return next((each for each in held if each.record.owner == owner), None)

    @property
    def waiters(self) -> list[KeyValue]:
        """The waiters, in the order of the queue, without the holder."""
        owner = self.record.owner if self.held and self.record is not None else None
        return [
            each
            for each in self.queue
            if each.session and (owner is None or not stands_for(each.key, owner))
        ]


def state_of(paths: Paths, pairs: Iterable[KeyValue], index: int = 1) -> State:
    """Return the state of one name from the keys that begin with ``paths.all``."""
    lock = mark = guard = None
    queue, shares = [], []
    for each in pairs:
        if each.key == paths.lock:
            lock = each
        elif each.key == paths.mark:
            mark = each
        elif each.key.startswith(paths.queue):
            queue.append(each)
        elif each.key == paths.guard:
            guard = each
        elif each.key.startswith(paths.shares) and (held := ConsulRecord.loads(each.value)):
            shares.append(Share(each, held))
    shares.sort(key=lambda each: each.token)
    queue.sort(key=lambda each: (each.created, each.key))
    record = None if lock is None else ConsulRecord.loads(lock.value)
    return State(lock, record, mark, queue, index, guard, shares)


def number_of(raw: bytes) -> int:
    """Return a number as it is stored; 0 for what is none."""
    return int(raw) if raw.isdigit() and len(raw) < 20 else 0


def entry_of(paths: Paths, owner: str, session: str) -> str:
    """Return the key of a waiter's queue entry.

    With the session: the lock-delay of one that ended keeps an entry from being taken again.
    """
    return f"{paths.queue}{quote(owner, safe='')}-{session[:13]}"


def stands_for(key: str, owner: str) -> bool:
    """Return whether a queue entry is that of an owner."""
    return key.rpartition("/")[2][: -len("-12345678-1234")] == quote(owner, safe="")


class Liveness:
    """What this process has seen of names, and since when it is unchanged.

    No two clocks are compared, and Consul's is not needed: a record that did not change for its
    ttl, by the clock of the watching process, was written longer ago than that. Its holder counts
    from before it wrote, so its own deadline is over. Whoever takes the lock then compares the
    record's index in the same step, so a renewal in between wins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = Mutex()
        self._seen: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()

    def age(self, what: Hashable, looks: Hashable) -> float:
        """Return for how many seconds ``what`` is unchanged; 0 when it is new."""
        now = self._clock()
        with self._mutex:
            seen = self._seen.get(what)
            if seen is None or seen[0] != looks:
                seen = self._seen[what] = (looks, now)
                if len(self._seen) > MOST:
                    self._seen.popitem(last=False)
            self._seen.move_to_end(what)
            return now - seen[1]

    def forget_parent(self) -> None:
        """Begin again in a forked child, where the mutex may be held by a thread that is not."""
        self._mutex = Mutex()
        self._seen = OrderedDict()
