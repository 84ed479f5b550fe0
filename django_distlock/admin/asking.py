"""What a user wants to see: filters, search, sorting and paging, as the address has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from .board import Board, Entry, missed

__all__ = ["AGES", "ORDERS", "STATES", "Asked", "Page"]

AGES: dict[int, Promise] = {
    10: _("10 seconds"),
    60: _("1 minute"),
    300: _("5 minutes"),
    3600: _("1 hour"),
    86400: _("1 day"),
}
STATES: dict[str, Promise] = {
    "missed": _("Missed a renewal"),
    "expired": _("Expired"),
}

Key = Callable[[Entry], Any]

STUCK = "stuck"
"""The order that the page begins with: first what missed a renewal, then what others wait for."""

ORDERS: dict[str, tuple[Promise, Key]] = {
    "name": (_("Lock"), lambda each: each.info.name),
    "alias": (_("Alias"), lambda each: (each.alias, each.info.name)),
    "holder": (_("Holder"), lambda each: (each.info.holder.host, each.info.holder.pid)),
    # The oldest last, as it is held for the longest time.
    "held": (_("Held for"), lambda each: -_since(each).timestamp()),
    "left": (_("Expires in"), lambda each: _end(each)),
    "waiters": (_("Waiters"), lambda each: each.info.waiters or 0),
    STUCK: (_("What may be stuck"), lambda each: _stuck(each)),
}
"""What can be sorted by, with what is compared."""

COLUMNS = ("name", "holder", "held", "left", "waiters")
"""What of it is a column of its own."""


def _stuck(entry: Entry) -> tuple[bool, bool, datetime]:
    info = entry.info
    return not missed(info, datetime.now(UTC)), not info.waiters, _since(entry)


def _since(entry: Entry) -> datetime:
    """Return when it was taken; where that is not told, as if it were now."""
    return entry.info.acquired_at or datetime.now(UTC)


def _end(entry: Entry) -> float:
    end = entry.info.expires_at
    return float("inf") if end is None else end.timestamp()


@dataclass(frozen=True, slots=True)
class Page:
    """What was found, and the part of it that is shown."""

    entries: list[Entry]
    found: int
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The question; what the address has that means nothing is left out."""

    q: str = ""
    alias: str = ""
    technique: str = ""
    older: int = 0
    state: str = ""
    o: str = STUCK
    p: int = 1

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Asked:
        """Read the question from a request's GET."""
        order = str(given.get("o", STUCK))
        older = _number(given.get("older"))
        state = str(given.get("state", ""))
        return cls(
            q=str(given.get("q", "")).strip()[:200],
            alias=str(given.get("alias", "")),
            technique=str(given.get("technique", "")),
            older=older if older in AGES else 0,
            state=state if state in STATES else "",
            o=order if order.removeprefix("-") in ORDERS else STUCK,
            p=max(1, _number(given.get("p"))),
        )

    @property
    def filtered(self) -> bool:
        """Whether not all locks are asked for."""
        return bool(self.q or self.alias or self.technique or self.older or self.state)

    @property
    def expired(self) -> bool:
        """Whether the leases that ran out are asked for."""
        return self.state == "expired"

    def query(self, **changes: Any) -> str:
        """Return the query string of this question, with changes."""
        asked = replace(self, **changes)
        plain = Asked()
        values = {name: getattr(asked, name) for name in Asked.__slots__}
        return urlencode({k: v for k, v in values.items() if v != getattr(plain, k)})

    def answer(self, board: Board, per_page: int) -> Page:
        """Return the page of what was asked for; the last one when there are not so many."""
        found = list(self._found(board))
        name = self.o.removeprefix("-")
        if name != "name":  # among equals, and it is the same from one refresh to the next
            found.sort(key=ORDERS["name"][1])
        found.sort(key=ORDERS[name][1], reverse=self.o.startswith("-"))
        found = _together(found)
        count = max(1, -(-len(found) // per_page))
        number = min(self.p, count)
        return Page(found[(number - 1) * per_page : number * per_page], len(found), number, count)

    def _found(self, board: Board) -> Iterator[Entry]:
        entries: Sequence[Entry] = board.expired if self.expired else board.distinct
        if self.alias:
            entries = board.expired if self.expired else board.entries
            entries = [each for each in entries if each.alias == self.alias]
        if self.technique:
            entries = [each for each in entries if each.technique == self.technique]
        if self.older:
            entries = [each for each in entries if (each.info.age(board.at) or 0.0) >= self.older]
        if self.state == "missed":
            entries = [each for each in entries if missed(each.info, board.at)]
        if self.q:
            words = self.q.casefold().split()
            entries = [each for each in entries if _matches(each, words)]
        return iter(entries)


def _together(entries: Sequence[Entry]) -> list[Entry]:
    """Return the holders of each lock together, where the first of them is."""
    locks: dict[tuple[str, str], list[Entry]] = {}
    for each in entries:
        locks.setdefault(each.lock, []).append(each)
    return [each for holders in locks.values() for each in holders]


def _matches(entry: Entry, words: Sequence[str]) -> bool:
    info = entry.info
    holder = info.holder
    text = [info.name, entry.alias, holder.host, str(holder.pid), holder.thread, holder.task]
    text += [holder.view, holder.user, holder.site, str(info.fencing_token)]
    text += map(str, info.metadata.values())
    everything = "\n".join(text).casefold()
    return all(word in everything for word in words)


def _number(text: Any) -> int:
    text = str(text or "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
