"""What etcd shows to people: who holds a lock, and who waits for it, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

from ...core.values import HolderInfo, LockInfo, moment, noted
from . import protocol
from .client import Operation
from .protocol import Key, contenders, holders, key_of

__all__ = ["look", "page"]

PAGE = 500
ENDS = 50
"""Leases that are asked for their end in one scan, or of one lock; see `page`."""
SHOWN = 100  # waiters of a lock that are shown by who they are


def look(root: str, digest: str) -> Operation[list[LockInfo]]:
    """Return who holds a lock."""
    first, end = protocol.whole_queue(root, digest)
    said = yield protocol.page(first, end, 0)
    for queue in _queues(key_of(said), root):
        return (yield from _infos(queue, root, ENDS))
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
    first, end = protocol.whole_queue(root)
    said = yield protocol.page(after or first, end, PAGE, revision)
    revision = revision if revision != "0" else str(int(said["header"]["revision"]))
    queues = list(_queues(key_of(said), root))
    following = ""
    if said.get("more"):
        last = queues[-1][0].under(root)[0]
        if len(queues) > 1:
            queues.pop()
            following = protocol.whole_queue(root, last)[0]
        else:
            following = protocol.whole_queue(root, last)[1]
            whole = yield protocol.page(*protocol.whole_queue(root, last), 0, revision)
            queues = list(_queues(key_of(whole), root))
    shown: list[LockInfo] = []
    for queue in queues:
        shown += yield from _infos(queue, root, ends - len(shown))
    return shown, following, revision


def _queues(keys: Iterable[Key], root: str) -> Iterator[list[Key]]:
    """Yield the keys of each lock in the order in which they were made."""
    for _, queue in groupby(keys, lambda key: key.under(root)[0]):
        yield sorted(queue, key=attrgetter("created"))


def _infos(queue: list[Key], root: str, ends: int) -> Operation[list[LockInfo]]:
    queue = contenders(queue)
    sure = holders(queue) if queue else []
    waiting = tuple(
        HolderInfo.loads(each.record.note).holder
        for each in queue[len(sure) : len(sure) + SHOWN]
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
            said = yield protocol.time_to_live(holder.lease)
            expires_at = datetime.now(UTC) + timedelta(seconds=max(int(said.get("TTL", -1)), 0))
        shown.append(
            noted(
                record.note,
                name=record.name,
                fencing_token=holder.token,
                slot=record.slot,
                acquired_at=moment(record.asked_at),
                expires_at=expires_at,
                waiters=len(queue) - len(sure),
                owner=holder.under(root)[1],
                waiting=waiting,
            )
        )
    return shown
