"""The technique with scripts: each primitive is one script on the server, and one round trip.

Waiters queue in the server. Whoever releases makes the first of them that still lives the holder,
for a short time, and tells the mailbox of its process; the waiter claims the lock by asking again.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ...core.flow import unread
from ...core.values import Claim, Grant, Refusal
from .commands import Command, Talk, load, run, run_all
from .records import index_of, kept, keys_of, record_of, short_owner, tag_of, words_of

__all__ = ["GRANT", "PRESENCE", "SAFETY", "Scripted", "ms"]

SAFETY = 0.25  # seconds after which a waiter asks, as a dead holder wakes none
PRESENCE = 0.5  # seconds without a word after which a process that waits is taken to be dead
GRANT = 0.25  # seconds in which a lock that was handed off has to be claimed

BATCH = 500  # claims that one script renews

GO_ON = 2  # in the place of 1 for joining the queue: see acquire.lua

TRIPS = 3  # round trips for which a handed-off lock is kept for the waiter
_PRESENCE, _GRANT = int(PRESENCE * 1000), int(GRANT * 1000)


def ms(seconds: float) -> int:
    """Return seconds as milliseconds, rounded up: a lease must not end before its holder thinks."""
    return math.ceil(seconds * 1000)


class Scripted:
    """How the primitives are done by scripts."""

    queues = True

    def __init__(self, base: str, retention: float, *, one_server: bool) -> None:
        self._base = base
        self._one_server = one_server
        self._retention = ms(math.ceil(retention))
        self._kept = kept(self._retention)
        self._acquire = load("acquire")
        self._release = load("release")
        self._renew = load("renew")
        self._clean = load("clean")
        self._trip = 0.0  # seconds of a round trip, where they were measured
        self._presence, self._grant = _PRESENCE, _GRANT

    def measured(self, seconds: float) -> None:
        """Note how long a round trip took: a waiter that claims a handed-off lock needs one.

        Where an attempt goes along with the wait it needs none, see `acquire`.
        """
        self._trip = max(seconds, 0.9 * self._trip)
        self._grant = max(_GRANT, ms(TRIPS * self._trip))
        self._presence = max(_PRESENCE, ms(SAFETY) + self._grant)

    def tag_of(self, claim: Claim) -> int:
        """Return the number of the hash tag that the mailboxes of a claim have to have."""
        return 0 if self._one_server else tag_of(claim.key)

    def acquire(self, claim: Claim, home: bytes) -> Talk[Any]:
        """Attempt once; when another holds the name, queue, unless ``home`` is empty.

        ``home`` is the key of the mailbox where the claim is to be told of its turn.
        """
        return run(self._acquire, *self._to_acquire(claim, home))

    def acquire_many(self, claims: Sequence[Claim]) -> Talk[list[Any]]:
        """Attempt each once, without queueing, by commands sent together."""
        return run_all(self._acquire, [self._to_acquire(claim, b"") for claim in claims])

    def acquire_at_once(self, claim: Claim, home: bytes) -> bytes:
        """Return the one command of `acquire`, packed, for a server that knows the script."""
        life, queues = self._life(claim.ttl), int(home != b"")
        return b"%b%b%b%b" % (
            _head(self._acquire.sha, 9, self._base, claim.key),
            _owner(claim.owner),
            _note(claim.name, claim.note),
            _rest(life, self._kept, queues, _PRESENCE, _GRANT, home, mode_of(claim)),
        )

    def _to_acquire(
        self, claim: Claim, home: bytes, *, go_on: bool = False
    ) -> tuple[Command, Command]:
        keys = keys_of(self._base, claim.key)
        return (keys.record, keys.index, keys.queue), (
            short_owner(claim.owner),
            words_of(claim.name, claim.note),
            self._life(claim.ttl),
            self._kept,
            GO_ON if go_on else int(home != b""),
            self._presence,
            self._grant,
            home,
            mode_of(claim),
        )

    def _life(self, ttl: float) -> int:
        return ms(ttl) + self._retention

    def understand(self, claim: Claim, answer: Any) -> Grant | Refusal:
        """Return what an answer of `acquire` means."""
        match answer:
            case int(token):
                return Grant(token, claim.ttl)
            case [int(token), int(slot)]:
                return Grant(token, claim.ttl, slot=slot)
            case [int(left), bytes(note), int(queued), *other] if len(other) < 2:
                text = note.decode("utf-8", "replace")
                return Refusal(max(left, 0) / 1000, text, queued == 1, *other)
        from redis.exceptions import InvalidResponse

        raise InvalidResponse(unread(answer))

    def release(self, claim: Claim) -> Talk[bool]:
        """Hand the name over, or free it; or withdraw."""
        answer = yield from run(self._release, *self._to_release(claim))
        return bool(answer == 1)

    def release_many(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Release each, by commands sent together."""
        answers = yield from run_all(self._release, [self._to_release(claim) for claim in claims])
        return [answer == 1 for answer in answers]

    def release_at_once(self, claim: Claim) -> bytes:
        """Return the one command of `release`, packed, for a server that knows the script."""
        return b"%b%b%b" % (
            _head(self._release.sha, 3, self._base, claim.key),
            _owner(claim.owner),
            _rest(self._retention, self._grant),
        )

    def _to_release(self, claim: Claim) -> tuple[Command, Command]:
        keys = keys_of(self._base, claim.key)
        args = (short_owner(claim.owner), self._retention, self._grant)
        return (keys.record, keys.index, keys.queue), args

    def renew(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Renew the claims by a few commands, sent together.

        In a cluster each of them is for the keys of one tag, which are on one node.
        """
        together: dict[int, list[Claim]] = defaultdict(list)
        for claim in claims:
            together[0 if self._one_server else tag_of(claim.key)].append(claim)
        batches = [
            same[start : start + BATCH]
            for same in together.values()
            for start in range(0, len(same), BATCH)
        ]
        answers = yield from run_all(self._renew, [self._to_renew(batch) for batch in batches])
        ours = {
            claim.owner
            for batch, answer in zip(batches, answers, strict=True)
            for claim, each in zip(batch, answer, strict=True)
            if each == 1
        }
        return [claim.owner in ours for claim in claims]

    def _to_renew(self, claims: Sequence[Claim]) -> tuple[list[bytes], list[Any]]:
        args: list[Any] = [self._grant]
        for claim in claims:
            note = claim.note if claim.shared else ""
            args += short_owner(claim.owner), ms(claim.ttl), note
        return [record_of(self._base, claim.key) for claim in claims], args

    def forget(self, tag: int, digests: Sequence[bytes], older: int) -> Talk[int]:
        """Take names off an index that were not held for ``older`` ms."""
        index = index_of(self._base, tag)
        records = [index[:-1] + digest for digest in digests]
        removed: int = yield from run(self._clean, (index, *records), (older, *digests))
        return removed

    def listen(
        self, claims: Iterable[Claim], home: bytes, seconds: float, *, known: bool
    ) -> list[Command]:
        """Return the commands that block until a claim is told, and say that the process lives.

        Unless that is ``known``, as it was said a moment ago.
        """
        wait = ("BLPOP", home, f"{seconds:.3f}")
        return [wait] if known else [("SET", home + b"p", b"1", "PX", self._presence), wait]

    def address(self, claim: Claim) -> bytes:
        """Return by what a claim is known in the mailbox."""
        return short_owner(claim.owner)

    def addressed(self, heard: Any) -> bytes:
        """Return the address of what was heard."""
        return bytes(heard[1])

    def may_go_along(self, claim: Claim) -> bool:
        """Return whether the next attempt may be sent along with a wait.

        It counts from when it was sent, so not with a ttl that is as short.
        """
        return claim.ttl >= 4 * SAFETY

    def go_on(self, claim: Claim, home: bytes) -> Command:
        """Return the next attempt of a claim that is queued; nothing if it has withdrawn since."""
        keys, args = self._to_acquire(claim, home, go_on=True)
        return ("EVALSHA", self._acquire.sha, len(keys), *keys, *args)


def mode_of(claim: Claim) -> str:
    """Return how a claim wants to hold its name, as holders.lua has it."""
    if claim.shared:
        return "s"
    return str(claim.limit) if claim.limit else "x"


def _words(*words: bytes | str | int) -> bytes:
    """Return words as they are sent."""
    packed = [each if isinstance(each, bytes) else str(each).encode() for each in words]
    return b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in packed)


# Most of a command is as it was in the last one for the name, so it is not packed again.


@functools.lru_cache(1024)
def _head(sha: str, args: int, base: str, key: str) -> bytes:
    """Return how the command of a script begins that is given a name, and so many arguments."""
    keys = keys_of(base, key)
    words = _words("EVALSHA", sha, 3, keys.record, keys.index, keys.queue)
    return b"*%d\r\n%b" % (args + 6, words)


@functools.lru_cache(256)
def _owner(owner: str) -> bytes:
    return _words(short_owner(owner))


@functools.lru_cache(256)
def _note(name: str, note: str) -> bytes:
    return _words(words_of(name, note))


_rest = functools.lru_cache(256)(_words)
