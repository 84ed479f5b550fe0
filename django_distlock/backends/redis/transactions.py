"""The technique without scripts, for servers that forbid them: WATCH, MULTI and EXEC.

The record is read under WATCH and written in a transaction, which the server leaves out when
another wrote the record in between; then it is read again. There is no queue: waiters block on a
list of hints, to which a release adds one when a process has waited lately, and try again.

A server whose memory is full takes no command into a transaction, not even DEL: nothing can be
released or renewed then, and a lock ends with its lease.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...core.members import Members
from ...core.values import Claim, Grant, Refusal
from .commands import Command, Talk
from .records import (
    RedisKeys,
    RedisRecord,
    held_record,
    index_of,
    keys_of,
    read,
    several_record,
    words_of,
)
from .scripts import PRESENCE, ms

__all__ = ["Watched"]

TRIES = 20  # times that a record is read again when others write it, until it counts as a conflict
HINT = 1000  # ms that a hint is kept for waiters


class Watched:
    """How the primitives are done by transactions."""

    queues = False

    def __init__(self, base: str, retention: float) -> None:
        self._base = base
        self._retention = ms(math.ceil(retention))

    def keys(self, claim: Claim) -> RedisKeys:
        """Return the keys of a claim."""
        return keys_of(self._base, claim.key)

    def tag_of(self, claim: Claim) -> int:
        """Return 0: nothing is told to one process only."""
        return 0

    def acquire(self, claim: Claim, home: bytes) -> Talk[Any]:
        """Attempt once."""
        keys = self.keys(claim)

        def decide(record: RedisRecord | None, left: int, now: int, waiting: bool) -> Any:
            if record is not None and record.owner not in ("", claim.owner) and left > 0:
                other = 0 if claim.limit else None
                return Refusal(left / 1000, record.note, other is None, other)
            token = 0 if record is None else record.token
            if record is None or record.owner != claim.owner:
                token = max(token + 1, now)
            members = _members_of(record, now)
            if not claim.is_exclusive:
                joined = members.joined(claim, now, token)
                if isinstance(joined, Refusal):
                    return replace(joined, queue=joined.other_limit is None)
                return joined.grant(claim), self._several(keys, claim, joined, token, now)
            if (refusal := members.refusal(claim, now)) is not None:
                told = replace(refusal, queue=refusal.other_limit is None)
                if (wanted := members.awaited(claim, now)) is None:
                    return told
                return told, self._several(keys, claim, wanted, token, now)
            words = words_of(claim.name, claim.note)
            held = held_record(token, self._retention, claim.owner, words)
            life = ms(claim.ttl) + self._retention
            return Grant(token, claim.ttl), [
                ("SET", keys.record, held, "PX", life),
                ("SADD", keys.index, keys.digest),
            ]

        return self._change(keys, decide)

    def _several(
        self, keys: RedisKeys, claim: Claim, members: Members, token: int, now: int
    ) -> list[Command]:
        """Return the commands that write who holds a name that several hold; or free it."""
        if not members.all and members.wanted <= now:
            return self._free(keys, token)
        record = several_record(token, self._retention, claim.name, members)
        life = max(0, -(-(members.ends() - now) // 1000)) + self._retention
        return [("SET", keys.record, record, "PX", life), ("SADD", keys.index, keys.digest)]

    def _free(self, keys: RedisKeys, token: int) -> list[Command]:
        return [
            ("SREM", keys.index, keys.digest),
            ("SET", keys.record, str(token), "PX", self._retention),
        ]

    def understand(self, claim: Claim, answer: Any) -> Grant | Refusal:
        """Return what an answer of `acquire` means: itself."""
        meant: Grant | Refusal = answer
        return meant

    def measured(self, seconds: float) -> None:
        """Need no round trip's length: nothing is handed off."""

    def release(self, claim: Claim) -> Talk[bool]:
        """Free the name, and add a hint if there is a waiter."""
        keys = self.keys(claim)
        hints = self.address(claim)

        def decide(record: RedisRecord | None, left: int, now: int, waiting: bool) -> Any:
            if record is None:
                return False
            held, members = left > 0, _members_of(record, now)
            if record.owner == claim.owner:
                commands = self._free(keys, record.token)
            elif members.of(claim.owner) is not None:
                held, members = True, members.without(claim.owner)
                commands = self._several(keys, claim, members, record.token, now)
            else:
                return False
            if waiting:
                commands += [
                    ("DEL", hints),
                    ("RPUSH", hints, b"1"),
                    ("PEXPIRE", hints, HINT),
                ]
            return held, commands

        released = yield from self._change(keys, decide)
        return bool(released)

    def renew(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Renew the claims, one after the other."""
        renewed = []
        for claim in claims:
            renewed.append((yield from self._renew(claim)))
        return renewed

    def _renew(self, claim: Claim) -> Talk[bool]:
        keys = self.keys(claim)

        def decide(record: RedisRecord | None, left: int, now: int, waiting: bool) -> Any:
            if record is None or left <= 0:
                return False
            members = _members_of(record, now)
            if record.owner == claim.owner and claim.shared:
                until = now + left * 1000
                members = Members.of_one(claim, record.token, record.token, until)
            if members.of(claim.owner) is not None:
                renewed = members.renewed(claim, now)
                return True, self._several(keys, claim, renewed, record.token, now)
            if record.owner != claim.owner:
                return False
            return True, [("PEXPIRE", keys.record, ms(claim.ttl) + record.retention)]

        renewed = yield from self._change(keys, decide)
        return bool(renewed)

    def forget(self, tag: int, digests: Sequence[bytes], older: int) -> Talk[int]:
        """Take names off an index that were not held for ``older`` ms."""
        index = index_of(self._base, tag)
        removed = 0
        for digest in digests:
            record = index[:-1] + digest
            keys = RedisKeys(record, index, index[:-1] + b"q:" + digest, digest, index[:-1])

            def decide(
                record: RedisRecord | None,
                left: int,
                now: int,
                waiting: bool,
                keys: RedisKeys = keys,
            ) -> Any:
                if record is not None and (record.owner or record.members) and left > -older:
                    return 0
                return 1, [("SREM", keys.index, keys.digest)]

            done = yield from self._change(keys, decide)
            removed += done
        return removed

    def listen(
        self, claims: Iterable[Claim], home: bytes, seconds: float, *, known: bool
    ) -> list[Command]:
        """Return the commands that say that there is a waiter, and block until there is a hint."""
        names = {claim.key: claim for claim in claims}
        waits: list[Command] = []
        for keys in map(self.keys, names.values()):
            waits.append(("SET", keys.base + b"w:" + keys.digest, b"1", "PX", ms(2 * PRESENCE)))
        hints = map(self.address, names.values())
        return [*waits, ("BLPOP", *hints, f"{seconds:.3f}")]

    def address(self, claim: Claim) -> bytes:
        """Return what a hint for a claim is known by: its name's key."""
        keys = self.keys(claim)
        return keys.base + b"h:" + keys.digest

    def addressed(self, heard: Any) -> bytes:
        """Return the address of what was heard."""
        return bytes(heard[0])

    def may_go_along(self, claim: Claim) -> bool:
        """Return False: an attempt is more than one command."""
        return False

    def go_on(self, claim: Claim, home: bytes) -> Command:
        raise NotImplementedError

    def _change(
        self,
        keys: RedisKeys,
        decide: Callable[[RedisRecord | None, int, int, bool], Any],
    ) -> Talk[Any]:
        """Read the record, and write what ``decide`` returns for it: (its answer, commands).

        Anything else that it returns is the answer, and nothing is written.
        """
        from redis.exceptions import WatchError

        for _ in range(TRIES):
            read_at_once = yield [
                ("UNWATCH",),  # what an interrupted one left
                ("WATCH", keys.record),
                ("GET", keys.record),
                ("PTTL", keys.record),
                ("TIME",),
                ("EXISTS", keys.base + b"w:" + keys.digest),
            ]
            _raise_first(read_at_once)
            raw, ttl, (seconds, micros), waiting = read_at_once[2:]
            record = read(raw)
            left = int(ttl) - (record.retention if record is not None else 0)
            now = int(seconds) * 1_000_000 + int(micros)
            decided = decide(record, left, now, bool(waiting))
            if not isinstance(decided, tuple):
                return decided
            answer, commands = decided
            answers = yield [("MULTI",), *commands, ("EXEC",)]
            done = answers[-1]
            _raise_first(answers[1:])  # refused before it began
            if done is not None:
                _raise_first(done)
                return answer
        raise WatchError(f"others wrote the record each of {TRIES} times that it was read")


def _members_of(record: RedisRecord | None, now: int) -> Members:
    """Return the living holders of a name that several hold."""
    if record is None or record.members is None:
        return Members()
    return record.members.living(now)


def _raise_first(answers: Sequence[Any]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
