"""What Consul shows of its locks, and what is cleaned there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ...core.durations import in_microseconds
from ...core.names import unreadable
from ...core.values import Cleaned, CleanPolicy, Holder, HolderInfo, LockInfo, moment, noted
from .api import Api, Talk, op
from .holds import now_ms
from .queue import Queue
from .records import KeyValue, Paths, State, number_of, state_of

__all__ = ["clean", "look", "names_of", "some_states"]

PARTS: Final = "0123456789abcdef"
"""The digests are read in so many parts, by their first digit."""
SHOWN: Final = 100
"""Waiters whose names are shown."""


def infos_of(key: str, state: State, queue: Queue) -> list[LockInfo]:
    """Return what people are shown of a name: each who holds it."""
    if state.alone is not None:
        left = queue.left(key, state)
        # Else whoever wants it may have it.
        held = [state.alone] if left is None or left > 0 else []
    else:
        _, dead = queue.shares.living(key, state)
        held = [share for share in state.shares if share not in dead]
    waiters = state.waiters
    waiting = tuple(_holder(each.value) for each in waiters[:SHOWN])
    return [
        noted(
            share.record.note,
            name=unreadable(share.record.name),
            fencing_token=share.token,
            acquired_at=moment(share.record.since * 1000),
            expires_at=moment(share.record.at * 1000 + in_microseconds(share.record.ttl)),
            waiters=len(waiters),
            owner=share.record.owner,
            waiting=waiting,
            slot=share.record.slot,
        )
        for share in held
    ]


def _holder(entry: bytes) -> Holder:
    return HolderInfo.loads(entry.partition(b" ")[2].decode("utf-8", "replace")).holder


def look(api: Api, queue: Queue, start: str, key: str) -> Talk[list[LockInfo]]:
    """Look at one name."""
    state = yield from api.look(Paths(start, key))
    return infos_of(key, state, queue)


def some_states(api: Api, start: str, part: str) -> Talk[dict[str, State]]:
    """Read the names whose digests begin so."""
    pairs, index = yield from api.pairs(f"{start}{part}")
    by_key: dict[str, list[KeyValue]] = defaultdict(list)
    for each in pairs:
        key, slash, _ = each.key[len(start) :].partition("/")
        if slash:
            by_key[key].append(each)
    return {key: state_of(Paths(start, key), some, index) for key, some in by_key.items()}


def names_of(states: dict[str, State], queue: Queue) -> Iterator[LockInfo]:
    """Yield what is held."""
    for key, state in states.items():
        yield from infos_of(key, state, queue)


def clean(api: Api, queue: Queue, start: str, policy: CleanPolicy, cursor: str) -> Talk[Cleaned]:
    """Clean the next names after a cursor: the part of the digests, and the last digest seen."""
    part = cursor[:1] or PARTS[0]
    removed = seen = 0
    while seen < policy.batch:
        states = yield from some_states(api, start, part)
        keys = [key for key in sorted(states) if key > cursor]
        some = keys[: policy.batch - seen]
        for key in some:
            seen += 1
            removed += yield from _clean_one(api, queue, start, key, states[key], policy)
            cursor = key
        if len(some) < len(keys):
            return Cleaned(removed=removed, seen=seen, cursor=cursor)
        if part == PARTS[-1]:
            return Cleaned(removed=removed, seen=seen)
        part = cursor = PARTS[PARTS.index(part) + 1]
    return Cleaned(removed=removed, seen=seen, cursor=cursor)


def _clean_one(
    api: Api, queue: Queue, start: str, key: str, state: State, policy: CleanPolicy
) -> Talk[bool]:
    """Remove what is not needed of a name, and tell whether that was all of it."""
    living = [each for each in state.queue if each.session]
    left = queue.left(key, state) if state.held else 0.0
    over = left is not None and left <= 0
    if not over or queue.shares.living(key, state)[0].all or _age(state) < policy.older_than:
        return False
    owner_only = state.held and len(living) == 1 and not state.waiters
    if living and not owner_only:
        return False
    if policy.dry_run:
        return True
    paths = Paths(start, key)
    return (yield from _remove(api, paths, state))


def _remove(api: Api, paths: Paths, state: State) -> Talk[bool]:
    ops = [op("delete-cas", each.pair.key, index=each.pair.index) for each in state.shares]
    ops += [op("delete", each.key) for each in state.queue]
    single = ((paths.lock, state.lock), (paths.mark, state.mark), (paths.guard, state.guard))
    for key, pair in single:
        if pair is None:
            ops.insert(0, op("check-not-exists", key))
        else:
            ops.insert(0, op("delete-cas", key, index=pair.index))
    return (yield from api.transact(ops[:60])).done


def _age(state: State) -> float:
    """Return for how many seconds a name has been idle, by the clocks of its users."""
    stamps = []
    for share in state.shares:
        stamps.append(share.record.at + int(share.record.ttl * 1000))
    if state.guard is not None:
        stamps.append(number_of(state.guard.value.rpartition(b" ")[2]))
    if state.record is not None:
        lasts = state.record.ttl if state.held else 0.0  # else it ended with its session
        stamps.append(state.record.at + int(lasts * 1000))
    elif state.lock is not None:
        stamps.append(number_of(state.lock.value))
    if state.mark is not None:
        stamps.append(number_of(state.mark.value.rpartition(b" ")[2]))
    stamps += [number_of(each.value.partition(b" ")[0]) for each in state.queue]
    return (now_ms() - max(stamps, default=0)) / 1000
