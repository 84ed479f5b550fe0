"""What the page shows: the answers of all stores, and each lock's row."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.utils.formats import number_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..backends.base import BaseLockBackend
from ..core.text import duration, shown
from ..core.values import LockInfo, doer_of, user_of
from ..exceptions import InvalidLockBackendError
from ..inspection import distinct, look, open_all

__all__ = ["Board", "Entry", "Row", "Store", "gather", "grouped", "missed", "technique_of"]

NAME, SITE, METADATA = 100, 60, 80  # characters that a row shows; the lock's own page shows all
LONG = 300.0  # seconds held from which on it is worth a look
SLACK = timedelta(seconds=1)  # between the times of a grant and of its lease, see `renews`
SLOW = 0.25  # seconds of a round trip from which on it is worth a look


def technique_of(backend: BaseLockBackend) -> str:
    """Return the name of a backend's technique: ``table``, ``redis``."""
    return type(backend).__name__.removesuffix("Backend").lower()


def missed(info: LockInfo, now: datetime) -> bool:
    """Return whether a lease should have been renewed by now, and was not.

    It is renewed when a third of its ttl has passed, and once more after two.
    """
    if info.expires_at is None or info.ttl is None or not renews(info):
        return False
    return 0 < (info.expires_at - now).total_seconds() < info.ttl / 3


def renews(info: LockInfo) -> bool:
    """Return whether the lease is known to be renewed, in thirds of its ttl.

    One that ends with its min_hold is not: it was released before, say.
    """
    until, end = info.held_until(), info.expires_at
    rests = until is not None and end is not None and end <= until + SLACK
    return info.ttl is not None and info.renewed and not rests


def grouped(number: int) -> str:
    """Return a number for people: ``10,000``, as the language has it."""
    return number_format(number, force_grouping=True)


@dataclass(slots=True)
class Store:
    """One alias in the strip on top."""

    alias: str
    technique: str = ""
    error: str = ""
    held: int = 0
    shows_holders: bool = True
    waiting: int | None = None
    """None where the store does not know."""
    round_trip: float | None = None

    @property
    def state(self) -> str:
        """``down``, ``slow`` or ``up``."""
        if self.error:
            return "down"
        return "slow" if (self.round_trip or 0.0) > SLOW else "up"

    @property
    def counts(self) -> tuple[str, str]:
        """How many are held, and how many wait, for people; empty where none waits."""
        return grouped(self.held), grouped(self.waiting) if self.waiting else ""

    @property
    def milliseconds(self) -> str:
        """The round trip for people."""
        ms = (self.round_trip or 0.0) * 1000
        return f"{ms:.1f}" if ms < 10 else f"{ms:.0f}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A lock that is held, and where."""

    alias: str
    technique: str
    info: LockInfo
    releasable: bool = True
    """Whether others than its holder can release it."""

    @property
    def lock(self) -> tuple[str, str]:
        """What the holders of one lock have in common."""
        return self.alias, self.info.name

    @property
    def key(self) -> str:
        """What names this very hold, and no later one of the same lock; it betrays no secret."""
        info = self.info
        facts = json.dumps([self.alias, info.name, info.fencing_token, info.owner])
        return f"{hashlib.sha256(facts.encode()).hexdigest()[:20]}:{self.alias}"


@dataclass(slots=True)
class Board:
    """All that the stores have said."""

    stores: list[Store]
    entries: list[Entry]
    """The locks of each alias; of aliases that are one store twice."""
    distinct: list[Entry]
    """The locks, each once."""
    expired: list[Entry]
    """Leases that ran out and were not released, if they were asked for."""
    ttls: dict[str, float]
    """The TTL setting of each alias."""
    problem: str = ""
    """Why no alias could be opened at all."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    took: float = 0.0

    @property
    def held(self) -> int:
        """How many locks are held, as far as the stores answer."""
        return len(self.distinct)

    @property
    def down(self) -> int:
        """How many stores could not be read: what is held there is not known."""
        return sum(1 for store in self.stores if store.error)

    @property
    def waiting(self) -> int | None:
        """How many wait, as far as the stores know."""
        if all(store.waiting is None for store in self.stores):
            return None
        return sum(entry.info.waiters or 0 for entry in self.distinct)

    def verdict(self) -> list[tuple[str, str]]:
        """Return the answer to "is anything stuck?": what is worth a look, each with its kind."""
        late = sum(1 for entry in self.distinct if missed(entry.info, self.at))
        old = sum(1 for entry in self.distinct if (entry.info.age(self.at) or 0.0) > LONG)
        told = []
        for store in self.stores:
            if store.error:
                told.append(("down", _("%(alias)s is down") % {"alias": store.alias}))
        if late:
            text = ngettext("%(n)s missed a renewal", "%(n)s missed a renewal", late)
            told.append(("warn", text % {"n": grouped(late)}))
        if old:
            text = ngettext(
                "%(n)s held for more than 5 minutes", "%(n)s held for more than 5 minutes", old
            )
            told.append(("old", text % {"n": grouped(old)}))
        if self.waiting:
            text = ngettext("%(n)s waiting", "%(n)s waiting", self.waiting)
            told.append(("waiting", text % {"n": grouped(self.waiting)}))
        return told

    def row(self, entry: Entry) -> Row:
        """Return what the page shows of a lock."""
        return Row(entry, self.at, self.ttls.get(entry.alias, 0.0))

    def rows(self, entries: Sequence[Entry]) -> list[Row]:
        """Return the rows of a page; the holders of one lock are under its name."""
        holders = Counter(each.lock for each in self.entries)
        rows, before = [], None
        for entry in entries:
            row = self.row(entry)
            row.follows = entry.lock == before
            if (count := holders[entry.lock]) > 1 and not row.follows:
                row.holders = ngettext("%(n)s holder", "%(n)s holders", count) % {
                    "n": grouped(count)
                }
            rows.append(row)
            before = entry.lock
        return rows


def gather(
    limit: float, *, using: set[str] | None = None, retry: str = "", expired: bool = False
) -> Board:
    """Ask every store (or those of the aliases ``using``), and take at most ``limit`` seconds.

    A store that hung before and still does is not waited for, unless it is to ``retry``.
    """
    begun = time.monotonic()
    try:
        backends, broken = open_all()
    except InvalidLockBackendError as error:
        return Board([], [], [], [], {}, problem=str(error))
    if using is not None:
        backends = {alias: backends[alias] for alias in backends if alias in using}
        broken = {}
    again = {alias: backends[alias] for alias in backends if alias == retry}
    others = {alias: backends[alias] for alias in backends if alias != retry}
    answers = look(
        others, "", limit, timed=using is None, expired=expired, patient=using is not None
    )
    if again:
        left = max(0.1, limit - (time.monotonic() - begun))
        answers += look(again, "", left, timed=True, expired=expired)
    board = Board(
        [Store(alias, error=shown(error, 500)) for alias, error in broken.items()],
        [],
        [],
        [],
        {alias: backend.conf.ttl for alias, backend in backends.items()},
    )
    answers.sort(key=lambda seen: list(backends).index(seen.alias))
    entry_of = {alias: _entries(backend) for alias, backend in backends.items()}
    for seen, info in distinct(answers):
        board.distinct.append(entry_of[seen.alias](info))
    for seen in answers:
        backend = backends[seen.alias]
        waiters = [info.waiters for info in seen.locks if info.waiters is not None]
        board.entries += map(entry_of[seen.alias], seen.locks)
        board.expired += map(entry_of[seen.alias], seen.expired)
        board.stores.append(
            Store(
                seen.alias,
                technique_of(backend),
                shown(seen.error or "", 500),
                len(seen.locks),
                backend.shows_holders,
                sum(waiters) if waiters or backend.counts_waiters else None,
                seen.round_trip,
            )
        )
    board.took = time.monotonic() - begun
    return board


def _entries(backend: BaseLockBackend) -> Callable[[LockInfo], Entry]:
    """Return what makes an entry of a lock: a page has thousands of them, and few backends."""
    alias, technique, releasable = backend.alias, technique_of(backend), backend.force_releases
    return lambda info: Entry(alias, technique, info, releasable)


class Row:
    """One lock as people see it. What is in the store may be hostile: see `text.shown`."""

    def __init__(self, entry: Entry, now: datetime, ttl: float) -> None:
        info = entry.info
        holder = info.holder
        self.key = entry.key
        self.ident = self.key.partition(":")[0]
        self.alias = entry.alias
        self.technique = entry.technique
        self.releasable = entry.releasable
        self.name = shown(info.name, NAME)
        self.follows = False
        """Whether the row before is of the same lock, which several hold."""
        self.holders = ""
        """How many hold it, where several do, in the first of their rows."""
        self.mode = _mode(info)
        self.host = shown(holder.host or "?", 60)
        self.pid = holder.pid
        self.doer = shown(doer_of(holder), 60)
        self.user = shown(user_of(holder), 60)
        self.site = shown(_short(holder.site), SITE)
        self.metadata = _metadata(info, METADATA)
        self.waiters = info.waiters
        self.age = info.age(now)
        self.held_for = "" if self.age is None else duration(self.age)
        self.left: float | None = None
        # What the holder has asked for; of older versions, and foreign programs, it is not known.
        self.most = info.ttl or ttl
        self.warns = self.most / 3 if renews(info) else 0.0
        self.at_least = _at_least(info, now)
        self.expired = info.expires_at is not None and info.expires_at <= now
        if info.expires_at is not None:
            self.left = max(0.0, (info.expires_at - now).total_seconds())
            self.most = max(self.left, self.most, 0.001)
        self.ttl_left = "" if self.left is None else duration(self.left)
        if self.expired and info.expires_at is not None:
            self.ttl_left = _ago((now - info.expires_at).total_seconds())
        self.missed = missed(info, now)

    @property
    def age_seconds(self) -> str:
        """The age for a program."""
        return "" if self.age is None else f"{self.age:.1f}"

    @property
    def left_seconds(self) -> str:
        """The seconds left for a program."""
        return f"{self.left or 0.0:.1f}"

    @property
    def most_seconds(self) -> str:
        """The whole of the bar for a program."""
        return f"{self.most:.1f}"

    @property
    def warns_seconds(self) -> str:
        """The seconds left from which on a renewal was missed, for a program."""
        return f"{self.warns:.1f}"


def facts(entry: Entry, now: datetime) -> list[tuple[str, str]]:
    """Return all that is known of a lock, by its names for people."""
    info = entry.info
    holder = info.holder
    left = ""
    if info.expires_at is not None:
        seconds = (info.expires_at - now).total_seconds()
        left = duration(seconds) if seconds > 0 else _ago(-seconds)
    since = ""
    if info.acquired_at is not None and (age := info.age(now)) is not None:
        since = f"{duration(age)} ({localtime(info.acquired_at).isoformat(' ', 'seconds')})"
    known = [
        (_("Lock"), shown(info.name, 10_000)),
        (_("Held by several"), _mode(info)),
        (_("Alias"), f"{entry.alias} ({entry.technique})"),
        (_("Host"), shown(holder.host) or "?"),
        (_("Process"), str(holder.pid or "?")),
        (_("Thread"), shown(holder.thread)),
        (_("Task"), shown(holder.task)),
        (_("View"), shown(holder.view)),
        (_("User"), shown(holder.user)),
        (_("Call site"), shown(holder.site, 1000)),
        (_("Held for"), since),
        (_("Expires in"), left),
        (_("Stays taken"), _at_least(info, now)),
        (_("Fencing token"), "" if info.fencing_token is None else str(info.fencing_token)),
        (_("Waiters"), _line(info)),
        (_("Metadata"), _metadata(info, 10_000)),
    ]
    return [(label, value) for label, value in known if value]


def _line(info: LockInfo) -> str:
    """Return how many wait, and who is next where the store shows that."""
    if info.waiters is None:
        return ""
    return "\n".join((str(info.waiters), *(shown(str(each), 200) for each in info.waiting)))


def _mode(info: LockInfo) -> str:
    """Return how a lock is held that several may hold; empty for all others."""
    if info.limit is not None:
        slot = "?" if info.slot is None else info.slot
        return _("slot %(slot)s, limit %(limit)s") % {"slot": slot, "limit": info.limit}
    return _("shared") if info.shared else ""


def _at_least(info: LockInfo, now: datetime) -> str:
    """Return for how long min_hold keeps the lock; empty where it does not."""
    until = info.held_until()
    if until is None or until <= now:
        return ""
    left = duration((until - now).total_seconds())
    return _("at least %(left)s, by min_hold") % {"left": left}


def _ago(seconds: float) -> str:
    return _("expired %(ago)s ago") % {"ago": duration(seconds)}


def _short(site: str) -> str:
    """Return a call site without the folders far above: ``shop/sales.py:33 sell``."""
    place, _space, function = site.partition(" ")
    return " ".join(part for part in ("/".join(place.split("/")[-2:]), function) if part)


def _metadata(info: LockInfo, most: int) -> str:
    if not info.metadata:
        return ""
    pairs = ", ".join(f"{key}: {_word(value)}" for key, value in info.metadata.items())
    return shown(pairs, most)


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
