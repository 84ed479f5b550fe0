"""What the primitives ask of the servers: generators that yield requests and are sent the answers.

An operation knows neither threads nor event loops; the backend carries it out in either mode. One
that was cut off may begin again: it goes by the entry of the claim, and by what the servers have.

Under a limit so many of the first of a queue hold the lock, each in a slot, which is stored in its
node. No two have the same, as it is written together with the data of the lock's node, which tells
who has which slot, if that is of the version that was read before. The change by which that was
done is the fencing token, so that the tokens of a slot rise.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from ...core.clock import Clock
from ...core.values import Claim, Grant, Refusal
from .entries import ZooKeeperEntries, ZooKeeperEntry
from .options import Facts
from .requests import (
    CONTAINER,
    Contender,
    ahead_of,
    contenders,
    creating,
    data_of,
    kinds,
    of_slots,
    sharers,
    shares,
    slot_of,
    slots_of,
    words_of,
)
from .session import ZooKeeperSession

__all__ = ["BATCH", "PRESENCE", "Talk", "ZooKeeperAlgorithm"]

T = TypeVar("T")
Talk: TypeAlias = Generator[list[Any], list[Any], T]

BATCH = 500  # requests sent together
PRESENCE = 3.0  # seconds that a waiter keeps its entry without asking for it
ASKING = 60.0  # seconds after which the creation of a node is no longer thought of
LOOK = 5.0  # seconds after which a waiter reads the queue, though nothing was told
MOST_KNOWN = 10_000
TRIES = 5  # times that a lock's node may vanish between being made and being used


class ZooKeeperAlgorithm:
    """The operations on the queues, and what this process knows of them."""

    def __init__(
        self,
        alias: str,
        facts: Facts,
        clock: Clock,
        session: ZooKeeperSession,
        entries: ZooKeeperEntries,
    ) -> None:
        self._alias = alias
        self._base = facts.base
        self._closed = facts.closed
        self._clock = clock
        self._session = session
        self._entries = entries
        self._known: set[str] = set()  # locks that have a node, unless it was removed since
        self._containers = True

    def path(self, claim: Claim) -> str:
        """Return the path of a claim's lock."""
        return f"{self._base}/{claim.key}"

    def acl(self) -> Any:
        """Return who may do what with our nodes."""
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

        return CREATOR_ALL_ACL if self._closed else OPEN_ACL_UNSAFE

    # -- acquire ---------------------------------------------------------------------------------

    def acquire(self, claim: Claim, *, join: bool) -> Talk[Grant | Refusal]:
        """Attempt once; with ``join`` stay in the queue when refused."""
        now = self._clock()
        entry = self._entries.get(claim.owner)
        if entry is not None and (entry.lost or entry.session not in (None, self._session.id)):
            self._entries.drop(entry)
            entry = None
        if entry is None:
            entry = ZooKeeperEntry(claim, self._base, now + ASKING)
            self._entries.add(entry)
            children = yield from self._enter(entry, claim)
        elif entry.granted:
            return (yield from self._grant(entry, claim, now, join=join, sure=False))
        else:
            self._entries.lasts(entry, now + PRESENCE)
            if not entry.node:
                children = yield from self._find(entry, claim)
            elif entry.looked and not entry.ahead and not entry.stale and not entry.limit:
                return (yield from self._grant(entry, claim, now, join=join))
            elif entry.watching and not entry.stale and now - entry.looked < LOOK:
                return Refusal(note=entry.note, queue=True)
            else:
                entry.stale = False
                (children,) = yield [_queue_of(entry)]
        return (yield from self._ranked(entry, claim, children, now, join=join))

    def _ranked(
        self, entry: ZooKeeperEntry, claim: Claim, children: Any, now: float, *, join: bool
    ) -> Talk[Grant | Refusal]:
        """Answer by the contenders ahead of us."""
        queue = _contenders_of(entry, children)
        before = ahead_of(queue, entry.node)
        if before is None:  # the node was removed: begin at the end of the queue
            self._entries.drop(entry)
            return (yield from self.acquire(claim, join=join))
        ahead = tuple(before)
        if claim.shared and ahead and ahead[0] == queue[0].node:
            (first,) = yield [kinds().GetData(f"{entry.path}/{ahead[0]}", None)]
            if not isinstance(first, Exception) and shares(first[0]):
                ahead = ahead[1:]  # it was alone once
        entry.looked = now
        entry.ahead = ahead
        other = queue[0].limit if queue[0].limit != claim.limit else None
        if not ahead and other is None:
            if entry.limit and not (yield from self._settle(entry, claim)):
                self._entries.drop(entry)
                return (yield from self.acquire(claim, join=join))
            return (yield from self._grant(entry, claim, now, join=join))
        if join and other is None:
            self._entries.lasts(entry, self._clock() + PRESENCE)
            return Refusal(note=entry.note, queue=True)
        K = kinds()
        gone, first = yield [
            K.Delete(entry.whole, -1),
            K.GetData(f"{entry.path}/{queue[0].node}", None),
        ]
        if not _is_missing(gone):
            _sound(gone)
        self._entries.drop(entry)
        note = "" if isinstance(first, Exception) else words_of(first[0])[1]
        return Refusal(note=note, other_limit=other)

    def _settle(self, entry: ZooKeeperEntry, claim: Claim) -> Talk[bool]:
        """Write the first slot that is free into our node; False if that is gone."""
        K = kinds()
        while entry.slot is None:
            # In this order: who has a slot by then and is not in the queue after it has left.
            slots, children, own = yield [
                K.GetData(entry.path, None),
                K.GetChildren(entry.path, None),
                K.GetData(entry.whole, None),
            ]
            if _is_missing(own):
                return False
            data, stat = _sound(own)
            if stat.version:  # written by us, though the answer was lost
                entry.slot, entry.token = slot_of(data), stat.mzxid
                break
            queue = contenders(_sound(children))
            (me,) = [each for each in queue if each.node == entry.node]
            others = {each.number for each in queue if each is not me}
            kept, before = _sound(slots)
            holders = [number if number in others else None for number in slots_of(kept)]
            holders = [*holders, *[None] * claim.limit][: claim.limit]
            first = queue[0]
            if first is not me and first.number not in holders and holders[0] is None:
                holders[0] = first.number  # it may have found itself alone: see `_alone`
            slot = holders.index(None)
            holders[slot] = me.number
            (results,) = yield [
                K.Transaction(
                    [
                        K.SetData(entry.path, of_slots(holders), before.version),
                        K.SetData(entry.whole, data_of(claim, slot), -1),
                    ]
                )
            ]
            # Else another one was faster, or our node is gone.
            if not any(isinstance(each, Exception) for each in _sound(results)):
                entry.slot, entry.token = slot, results[1].mzxid
        return True

    def _grant(
        self, entry: ZooKeeperEntry, claim: Claim, now: float, *, join: bool, sure: bool = True
    ) -> Talk[Grant | Refusal]:
        """Grant, unless the node is not ours any more; asked only if that may be so.

        A process that was paused reads old answers: its session may have ended since.
        """
        stands = True
        if not sure or self._clock() >= self._session.sure_until(entry.session):
            (stat,) = yield [kinds().Exists(entry.whole, None)]
            stands = _sound(stat) is not None and entry.session == self._session.id
        # The lease is counted from before the question, which is earlier: it ends before its node.
        if stands and self._entries.lasts(entry, now + claim.ttl):
            entry.granted = True
            return Grant(entry.token, claim.ttl, slot=entry.slot)
        self._entries.drop(entry)
        return (yield from self.acquire(claim, join=join))

    def _enter(self, entry: ZooKeeperEntry, claim: Claim) -> Talk[Any]:
        """Enter the queue at its end, and return who is in it."""
        request = creating(entry.path, claim, self.acl())
        created = children = None
        for _ in range(TRIES):
            made = [] if entry.key in self._known else [self._container(entry.path)]
            *_, created, children = yield [*made, request, _queue_of(entry)]
            if not _is_missing(created):
                path, stat = _sound(created)
                self._know(entry.key)
                entry.node = path.rpartition("/")[2]
                entry.token, entry.session = stat.czxid, stat.ephemeralOwner
                if entry.limit and not isinstance(children, Exception):
                    _alone(entry, *children)
                if self._entries.get(entry.owner) is not entry:
                    self._entries.add(entry)  # given up meanwhile, without a node to be removed
                return children
            self._known.discard(entry.key)
            yield from self._make(entry.path)
        _sound(created)
        return children

    def _know(self, key: str) -> None:
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()  # which costs a request when they are used again
            self._known.add(key)

    def _container(self, path: str) -> Any:
        if self._containers:
            return kinds().Container(path, b"", self.acl(), CONTAINER)
        return kinds().Create(path, b"", self.acl(), 0)

    def _make(self, path: str) -> Talk[None]:
        """Make a lock's node, and those above it."""
        from kazoo.exceptions import NodeExistsError, UnimplementedError
        from kazoo.security import OPEN_ACL_UNSAFE

        parents = self._base.split("/")
        # Above ours anybody may make nodes: others have theirs there.
        above = [
            kinds().Create(
                "/".join(parents[:end]),
                b"",
                self.acl() if end == len(parents) else OPEN_ACL_UNSAFE,
                0,
            )
            for end in range(2, len(parents) + 1)
        ]
        *_, made = yield [*above, self._container(path)]
        if isinstance(made, UnimplementedError) and self._containers:
            self._containers = False  # older than 3.5: cleanlocks removes them
            (made,) = yield [self._container(path)]
        if not isinstance(made, NodeExistsError):
            _sound(made)

    def _find(self, entry: ZooKeeperEntry, claim: Claim) -> Talk[Any]:
        """Find the node whose creation was not answered, or make one, and return the queue."""
        (children,) = yield [_queue_of(entry)]
        mine = [each for each in _contenders_of(entry, children) if each.owner == claim.owner]
        for each in mine:
            (stat,) = yield [kinds().Exists(f"{entry.path}/{each.node}", None)]
            if stat is None or isinstance(stat, Exception):
                continue
            if stat.ephemeralOwner == self._session.id and not entry.node:
                entry.node, entry.token = each.node, stat.czxid
                entry.session = stat.ephemeralOwner
            else:  # of a session that has ended, or is about to
                yield [kinds().Delete(f"{entry.path}/{each.node}", -1)]
        if entry.node:
            return children
        return (yield from self._enter(entry, claim))

    # -- renew and release -----------------------------------------------------------------------

    def renew(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Tell of each claim whether it is held still; its ttl begins again."""
        now = self._clock()
        ours: dict[str, bool] = {}
        asked: list[tuple[Claim, ZooKeeperEntry]] = []
        for claim in claims:
            entry = self._entries.get(claim.owner)
            ours[claim.owner] = False
            if entry is None or entry.lost or not entry.granted:
                continue
            if entry.session == self._session.id:
                if claim.shared and not entry.shared:
                    # In its data, not by a new name: waiters watch for the end of this node.
                    (written,) = yield [kinds().SetData(entry.whole, data_of(claim), -1)]
                    entry.shared = not isinstance(written, Exception)
                asked.append((claim, entry))
        for start in range(0, len(asked), BATCH):
            some = asked[start : start + BATCH]
            stats = yield [kinds().Exists(entry.whole, None) for _, entry in some]
            for (claim, entry), stat in zip(some, stats, strict=True):
                there = _sound(stat) is not None and self._entries.lasts(entry, now + claim.ttl)
                ours[claim.owner] = there
                if not there:
                    self._entries.drop(entry)
        return [ours[claim.owner] for claim in claims]

    def release(self, claim: Claim) -> Talk[bool]:
        """Remove a claim's node, in the queue or at its head; return whether it held the lock."""
        entry = self._entries.get(claim.owner)
        if entry is None or not entry.node or entry.session != self._session.id:
            answer = yield from self._release_found(claim)
            if entry is not None:
                self._entries.drop(entry)
            return answer
        before, entry.unsure = entry.unsure, True
        (gone,) = yield [kinds().Delete(entry.whole, -1)]
        missing = _is_missing(gone)
        if not missing:
            _sound(gone)
        self._entries.drop(entry)
        if entry.lost:
            return False
        # What was there and is gone after a request that was not answered, that one removed.
        return entry.granted and (before or not missing)

    def _release_found(self, claim: Claim) -> Talk[bool]:
        """Release what this process has no entry for: another's, or one whose answer was lost."""
        path = self.path(claim)
        (children,) = yield [kinds().GetChildren(path, None)]
        queue = [] if _is_missing(children) else contenders(_sound(children))
        mine = [each for each in queue if each.owner == claim.owner]
        if not mine:
            return False
        holds = mine[0] is queue[0] or (queue[0].limit > 0 and mine[0] in sharers(queue))
        if not holds and mine[0] in sharers(queue):
            (first,) = yield [kinds().GetData(f"{path}/{queue[0].node}", None)]
            holds = queue[0].shared or (not isinstance(first, Exception) and shares(first[0]))
        gone = yield [kinds().Delete(f"{path}/{each.node}", -1) for each in mine]
        for each in gone:
            if not _is_missing(each):
                _sound(each)
        return holds and not _is_missing(gone[0])

    # -- waiting ---------------------------------------------------------------------------------

    def watch(self, entry: ZooKeeperEntry) -> Talk[None]:
        """Have the end of the node before ours told to us."""
        K, ahead = kinds(), entry.ahead
        if not ahead:
            return  # we were told meanwhile
        # Under a limit any that leaves may make room for the first waiter. Each other one watches
        # the node before its own, into which a slot is written when it has one.
        first = len(ahead) == entry.limit
        path = entry.path if first else f"{entry.path}/{ahead[-1]}"
        if entry.watching == path:
            return
        try:
            watcher = self._entries.watch(entry, path)
            if watcher is None:
                return
            (found,) = yield [K.GetChildren(path, watcher) if first else K.GetData(path, watcher)]
        except BaseException:
            self._entries.told(path, deleted=False)
            raise
        if _is_missing(found):  # and then no watch was left behind
            self._entries.told(path, deleted=True)
        elif isinstance(found, Exception):
            self._entries.told(path, deleted=False)
            raise found
        elif first:
            before = ahead_of(contenders(found), entry.node) or ()
            entry.stale = entry.stale or tuple(before) != ahead
        else:
            entry.stale = entry.stale or bool(entry.limit and found[1].version)
            if len(ahead) == 1:
                entry.note = words_of(found[0])[1]


def _queue_of(entry: ZooKeeperEntry) -> Any:
    """Return the request for the contenders; under a limit it tells, too, of their last change."""
    kind = kinds().GetChildren2 if entry.limit else kinds().GetChildren
    return kind(entry.path, None)


def _contenders_of(entry: ZooKeeperEntry, answer: Any) -> list[Contender]:
    """Return the contenders of a queue by the answer to `_queue_of`."""
    if _is_missing(answer):
        return []
    children = _sound(answer)
    return contenders(children[0] if entry.limit else children)


def _alone(entry: ZooKeeperEntry, children: list[str], stat: Any) -> None:
    """Have a new node the slot that is stored in it, if no other was there by then."""
    if len(contenders(children)) == 1 and stat.pzxid == entry.token > stat.mzxid:
        entry.slot = 0


def _is_missing(answer: object) -> bool:
    from kazoo.exceptions import NoNodeError

    return isinstance(answer, NoNodeError)


def _sound(answer: Any) -> Any:
    """Return an answer that is no error; raise it if it is one."""
    if isinstance(answer, Exception):
        raise answer
    return answer
