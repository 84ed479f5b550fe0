"""What etcd shows to people: who holds a lock, and who waits for it, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

from ...core.values import LockInfo, Note, noted
from . import messages
from .asking import Operation
from .messages import Key, contenders, holders, key_of

__all__ = ["look", "page"]

PAGE = 500
ENDS = 50
"""Leases that are asked for their end in one scan, or of one lock; see `page`."""
SHOWN = 100  # waiters of a lock that are shown by who they are
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def look(root: str, digest: str) -> Operation[list[LockInfo]]:
    """Return who holds a lock."""
    first, end = messages.whole_line(root, digest)
    said = yield messages.page(first, end, 0)
    for line in _lines(key_of(said), root):
        return (yield from _infos(line, root, ENDS))
    return []


def page(
    root: str, after: str, revision: str, ends: int
) -> Operation[tuple[list[LockInfo], str, str]]:
    """Return the next held locks, where to go on ("": that was all), and the revision of all.

    Of ``ends`` of them the end is asked for, the others have none: etcd tells of one lease at a
    time, and of 10,000 that would take too long for a list. `look` tells it.
    A line that is cut off at the end of a page is begun again with the next one, unless it is
    longer than a page, and then it is shown as far as it goes.
    """
    first, end = messages.whole_line(root)
    said = yield messages.page(after or first, end, PAGE, revision)
    revision = revision if revision != "0" else said["header"]["revision"]
    lines = list(_lines(key_of(said), root))
    following = ""
    if said.get("more"):
        last = lines[-1][0].under(root)[0]
        if len(lines) > 1:
            lines.pop()
            following = messages.whole_line(root, last)[0]
        else:
            following = messages.whole_line(root, last)[1]
            whole = yield messages.page(*messages.whole_line(root, last), 0, revision)
            lines = list(_lines(key_of(whole), root))
    shown: list[LockInfo] = []
    for line in lines:
        shown += yield from _infos(line, root, ends - len(shown))
    return shown, following, revision


def _lines(keys: Iterable[Key], root: str) -> Iterator[list[Key]]:
    """Yield the keys of each lock in the order in which they were made."""
    for _, line in groupby(keys, lambda key: key.under(root)[0]):
        yield sorted(line, key=attrgetter("created"))


def _infos(line: list[Key], root: str, ends: int) -> Operation[list[LockInfo]]:
    line = contenders(line)
    sure = holders(line) if line else []
    waiting = tuple(
        Note.loads(each.record.note).holder
        for each in line[len(sure) : len(sure) + SHOWN]
        if each.record
    )
    shown: list[LockInfo] = []
    for holder in sure:
        # Etcd shows no time of its own: this is when the holder asked, by its host's clock.
        record = holder.record
        if record is None:  # written by another program
            continue
        expires_at = None
        if len(shown) < ends:
            said = yield messages.time_to_live(holder.lease)
            expires_at = datetime.now(UTC) + timedelta(seconds=max(int(said.get("TTL", -1)), 0))
        shown.append(
            noted(
                record.note,
                name=record.name,
                fencing_token=holder.token,
                slot=record.slot,
                acquired_at=EPOCH + timedelta(microseconds=record.asked_at),
                expires_at=expires_at,
                waiters=len(line) - len(sure),
                owner=holder.under(root)[1],
                waiting=waiting,
            )
        )
    return shown
