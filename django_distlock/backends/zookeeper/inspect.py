"""What a ZooKeeper shows of its locks, and what is cleaned there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...core.names import key_of
from ...core.values import Cleaned, CleanPolicy, Holder, HolderInfo, LockInfo, moment, noted
from ..flows import FlowBackend
from .algorithm import Talk
from .options import Facts
from .requests import Contender, contenders, kinds, sharers, shares, slot_of, words_of

__all__ = ["ZooKeeperInspection"]

PAGE = 200  # locks that are read in one round trip
SHOWN = 100  # waiters of a lock that are shown by who they are
TRIES = 5


class ZooKeeperInspection(FlowBackend):
    """The part of the zookeeper backend that inspects locks."""

    facts: Facts

    def holders_flow(self, name: str) -> Talk[list[LockInfo]]:
        found = yield from self._look_at([self.key(name)], queue=True)
        return [info for _, info in found]

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        keys = self.do(self._keys)
        for start in range(0, len(keys), PAGE):
            found = self.do(partial(self._look_at, keys[start : start + PAGE], queue=True))
            for key, info in found:
                # Below the same path may be those of aliases with other PREFIXes.
                if info.name.startswith(prefix) and key == key_of(self.conf.prefix, info.name):
                    yield info

    def _keys(self) -> Talk[list[str]]:
        (children,) = yield [kinds().GetChildren(self.facts.base, None)]
        return [] if _is_missing(children) else sorted(_sound(children))

    def _look_at(self, keys: list[str], *, queue: bool) -> Talk[list[tuple[str, LockInfo]]]:
        """Return the locks that are held among these; what was released meanwhile is read again.

        Of a lock whose holder changed each time that it was read nothing is shown.
        """
        base = self.facts.base
        found: list[tuple[str, LockInfo]] = []
        for _ in range(TRIES):
            found_children = yield [kinds().GetChildren(f"{base}/{key}", None) for key in keys]
            held = [
                (key, contending)
                for key, children in zip(keys, found_children, strict=True)
                if not _is_missing(children) and (contending := contenders(_sound(children)))
            ]
            if not held:
                break
            datas = yield [
                kinds().GetData(f"{base}/{key}/{each.node}", None)
                for key, contending in held
                for each in sharers(contending)
            ]
            keys, answers = [], iter(datas)
            for key, contending in held:
                first, *others = [(each, next(answers)) for each in sharers(contending)]
                if _is_missing(first[1]):
                    keys.append(key)
                    continue
                several = contending[0].shared or contending[0].limit or shares(_sound(first[1])[0])
                sure = [first, *(each for each in others if several and not _is_missing(each[1]))]
                rest = contending[len(others) + 1 if several else 1 :]
                waiting: tuple[Holder, ...] = ()
                if queue and rest:
                    waiting = yield from self._waiting(key, rest[:SHOWN])
                for each, answer in sure:
                    data, stat = _sound(answer)
                    found.append((key, _info(each, len(rest), data, stat, waiting)))
            if not keys:
                break
        return found

    def _waiting(self, key: str, contending: list[Contender]) -> Talk[tuple[Holder, ...]]:
        answers = yield [
            kinds().GetData(f"{self.facts.base}/{key}/{each.node}", None) for each in contending
        ]
        return tuple(
            HolderInfo.loads(words_of(answer[0])[1]).holder
            for answer in answers
            if not isinstance(answer, Exception)
        )

    def clean_flow(self, policy: CleanPolicy, cursor: str) -> Talk[Cleaned]:
        """Remove locks that are old, have an empty queue, and keep it meanwhile.

        Servers from 3.5 on do so by themselves, a minute after the last one has left.
        """
        keys = [key for key in (yield from self._keys()) if key > cursor]
        some, base = keys[: policy.batch], self.facts.base
        if not some:
            return Cleaned()
        # The time is the servers': what was written just now tells it.
        touched, *stats = yield [
            kinds().SetData(base, b"", -1),
            *(kinds().Exists(f"{base}/{key}", None) for key in some),
        ]
        born = _sound(touched).mtime - policy.older_than * 1000
        idle = [
            key
            for key, stat in zip(some, stats, strict=True)
            if _sound(stat) is not None and not stat.numChildren and stat.ctime <= born
        ]
        removed = len(idle)
        if idle and not policy.dry_run:
            gone = yield [kinds().Delete(f"{base}/{key}", -1) for key in idle]
            removed = sum(answer is True for answer in gone)
            for answer in gone:
                if not _is_missing(answer) and not _is_taken(answer):
                    _sound(answer)
        more = some[-1] if len(keys) > len(some) else None
        return Cleaned(removed=removed, seen=len(some), cursor=more)


def _info(
    holder: Contender, waiters: int, data: bytes, stat: Any, waiting: tuple[Holder, ...]
) -> LockInfo:
    name, words = words_of(data)
    return noted(
        words,
        name=name,
        fencing_token=stat.mzxid if holder.limit else stat.czxid,
        slot=slot_of(data),
        acquired_at=moment(stat.ctime * 1000),
        expires_at=None,  # when the session of its process ends, or its ttl there runs out
        waiters=waiters,
        owner=holder.owner,
        waiting=waiting,
    )


def _is_missing(answer: object) -> bool:
    from kazoo.exceptions import NoNodeError

    return isinstance(answer, NoNodeError)


def _is_taken(answer: object) -> bool:
    from kazoo.exceptions import NotEmptyError

    return isinstance(answer, NotEmptyError)


def _sound(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
