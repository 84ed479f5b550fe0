"""What is said to etcd's JSON gateway, and what it answers. Pure.

Keys and values are in base64 there, and numbers of 64 bits are strings. Nothing else goes into a
message than base64 and numbers, so the messages are written by hand: it takes a fifth of the time.
"""

from __future__ import annotations

import binascii
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from ...core.names import readable, unreadable
from ...core.values import Claim

__all__ = [
    "EtcdKeys",
    "EtcdRecord",
    "Key",
    "Question",
    "base64",
    "contenders",
    "exists",
    "grant",
    "hand_over",
    "holders",
    "in_queue",
    "in_the_way",
    "join",
    "keepalive",
    "key_of",
    "look",
    "move",
    "nested",
    "page",
    "release",
    "revoke",
    "settle",
    "share",
    "take",
    "time_to_live",
    "watch",
    "whole_queue",
    "withdraw",
]

_BASE64 = re.compile(r"[A-Za-z0-9+/=]+")
_LIMITED = re.compile(r"([0-9]{1,9}):([0-9]{0,9}):([0-9]{1,19})")

TXN, RANGE, KEEPALIVE = "/v3/kv/txn", "/v3/kv/range", "/v3/lease/keepalive"

SHARED = "shared"


@dataclass(slots=True)
class Question:
    """One request to etcd.

    ``reads``: it changes nothing, so it may be repeated without a thought. Any other of ours may be
    repeated, too, but whoever asked has to know that it was: ``repeated``.
    """

    path: str
    body: str = field(repr=False)
    reads: bool = False
    repeated: bool = False


def base64(text: str) -> str:
    """Return a str as JSON has it for bytes."""
    raw = text.encode("utf-8", "surrogatepass")
    return binascii.b2a_base64(raw, newline=False).decode()


def _plain(text: str) -> str:
    return binascii.a2b_base64(text).decode("utf-8", "surrogatepass")


# -- keys and values -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EtcdKeys:
    """The keys of one claim; encoded when asked for, as each lease would keep all of them."""

    root: str
    """What the keys of the alias begin with."""
    lock: str
    owner: str

    @classmethod
    def of(cls, root: str, claim: Claim) -> EtcdKeys:
        """Return the keys of a claim under ``root``."""
        return cls(root, claim.key, claim.owner)

    @property
    def own(self) -> str:
        """The claim's own."""
        return base64(f"{self.root}{self.lock}/{self.owner}")

    @property
    def first(self) -> str:
        """From which on those lie that ask for the same lock."""
        return base64(f"{self.root}{self.lock}/")

    @property
    def end(self) -> str:
        """Before which they end."""
        return base64(f"{self.root}{self.lock}0")


def whole_queue(root: str, digest: str = "") -> tuple[str, str]:
    """Return the bounds of all keys of a lock, or of all locks."""
    if digest:
        return base64(f"{root}{digest}/"), base64(f"{root}{digest}0")
    return base64(root), base64(root[:-1] + chr(ord(root[-1]) + 1))


@dataclass(frozen=True, slots=True)
class EtcdRecord:
    """What is stored under a contender's key, for people."""

    asked_at: int
    """In microseconds since 1970, by the clock of who asked."""
    name: str
    note: str
    shared: bool = False
    """Whether others that share the lock may hold it, too."""
    limit: int = 0
    """How many may hold it at once; 0: it has no limit."""
    slot: int | None = None
    """Which of them the contender has, or would have; see `EtcdAlgorithm`."""
    token: int = 0
    """The fencing token, where it does not follow from the key's revisions; else 0."""

    @classmethod
    def of(cls, claim: Claim, slot: int | None = None) -> EtcdRecord:
        """Return that of a claim which asks now."""
        now = round(time.time() * 1e6)
        return cls(now, claim.name, claim.note, claim.shared, claim.limit, slot)

    def dumps(self) -> str:
        words = [str(self.asked_at)]
        if self.shared:
            words.append(SHARED)
        if self.limit:
            slot = "" if self.slot is None else str(self.slot)
            words.append(f"{self.limit}:{slot}:{self.token}")
        return f"{' '.join(words)}\n{readable(self.name)}\n{self.note}"

    @classmethod
    def loads(cls, text: str) -> EtcdRecord | None:
        """Read what `dumps` wrote; None if it is something else."""
        parts = text.split("\n", 2)
        asked_at, *mode = parts[0].split(" ")
        if len(parts) != 3 or not re.fullmatch(r"[0-9]{1,19}", asked_at):
            return None
        found = cls(int(asked_at), unreadable(parts[1]), parts[2])
        if mode == [SHARED]:
            return replace(found, shared=True)
        if mode and (limited := _LIMITED.fullmatch(" ".join(mode))):
            limit, slot, token = limited.groups()
            slot = int(slot) if slot else None
            return replace(found, limit=int(limit), slot=slot, token=int(token))
        return None if mode else found


@dataclass(frozen=True, slots=True)
class Key:
    """A contender's key as etcd shows it."""

    key: str
    """In base64."""
    created: int
    lease: str
    value: str = field(default="", repr=False)
    modified: int = 0

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Key:
        key = raw["key"]
        if not _BASE64.fullmatch(key):  # it goes into messages again
            raise ValueError(f"a key in base64 is expected, not {key!r}")
        return cls(
            key,
            int(raw["create_revision"]),
            str(int(raw.get("lease", "0"))),
            raw.get("value", ""),
            int(raw["mod_revision"]),
        )

    @property
    def asks(self) -> bool:
        """Whether a process asks for the lock by it: what other programs put there has no lease."""
        return self.lease != "0"

    @property
    def shares(self) -> bool:
        """Whether it asks to share the lock; known where its value was asked for."""
        record = self.record
        return record is not None and record.shared

    @property
    def limit(self) -> int:
        """How many may hold the lock by it, as `shares`; 0: it has no limit."""
        record = self.record
        return 0 if record is None else record.limit

    @property
    def slot(self) -> int | None:
        """The slot that it has, or would have."""
        record = self.record
        return None if record is None else record.slot

    @property
    def token(self) -> int:
        """The fencing token of who holds the lock by it.

        The revision at which it was made; under a limit that at which its slot was written.
        """
        record = self.record
        if record is None or not record.limit:
            return self.created
        return record.token or self.modified

    @property
    def record(self) -> EtcdRecord | None:
        """What is stored under it, if it is ours, and its value was asked for."""
        return EtcdRecord.loads(_plain(self.value)) if self.value else None

    def under(self, root: str) -> tuple[str, str]:
        """Return the digest of the lock's name and the owner."""
        digest, _, owner = _plain(self.key)[len(root) :].partition("/")
        return digest, owner


# -- leases ----------------------------------------------------------------------------------------


def grant(ttl: int) -> Question:
    """Ask for a lease."""
    return Question("/v3/lease/grant", f'{{"TTL":{ttl}}}')


def revoke(lease: str) -> Question:
    """End a lease with every key that hangs on it; nothing can be hung on it any more."""
    return Question("/v3/lease/revoke", f'{{"ID":"{lease}"}}')


def keepalive(leases: Iterable[str]) -> Question:
    """Begin the ttl of several leases again; they are answered in lines, in the same order."""
    return Question(KEEPALIVE, "\n".join(f'{{"ID":"{each}"}}' for each in leases), reads=True)


def time_to_live(lease: str) -> Question:
    """Ask how long a lease still lives."""
    return Question("/v3/lease/timetolive", f'{{"ID":"{lease}"}}', reads=True)


# -- the wait queue of a lock ----------------------------------------------------------------------


def _txn(compare: str, success: Sequence[str], failure: Sequence[str] = ()) -> str:
    return (
        f'{{"compare":[{compare}],"success":[{",".join(success)}],"failure":[{",".join(failure)}]}}'
    )


def _put(key: str, value: str, lease: str) -> str:
    return f'{{"request_put":{{"key":"{key}","value":"{value}","lease":"{lease}"}}}}'


def _rewrite(key: str, value: str) -> str:
    return f'{{"request_put":{{"key":"{key}","ignore_lease":true,"value":"{value}"}}}}'


def _rehang(key: str, lease: str) -> str:
    return f'{{"request_put":{{"key":"{key}","ignore_value":true,"lease":"{lease}"}}}}'


def _get(key: str, *, values: bool = False) -> str:
    only = "" if values else ',"keys_only":true'
    return f'{{"request_range":{{"key":"{key}"{only}}}}}'


def _delete(key: str) -> str:
    return f'{{"request_delete_range":{{"key":"{key}"}}}}'


def _is_created_at(key: str, revision: int) -> str:
    return f'{{"key":"{key}","target":"CREATE","result":"EQUAL","create_revision":"{revision}"}}'


def _is_modified_at(key: str, revision: int) -> str:
    return f'{{"key":"{key}","target":"MOD","result":"EQUAL","mod_revision":"{revision}"}}'


def _ranked(
    keys: EtcdKeys, order: str, limit: int, *, before: int = 0, values: bool = False
) -> str:
    """Ask for those of a queue who came first or last, of all or of those ``before`` a revision."""
    bound = f',"max_create_revision":"{before - 1}"' if before else ""
    only = "" if values else ',"keys_only":true'
    return (
        f'{{"request_range":{{"key":"{keys.first}","range_end":"{keys.end}","limit":"{limit}",'
        f'"sort_target":"CREATE","sort_order":"{order}"{bound}{only}}}}}'
    )


def take(keys: EtcdKeys, value: str, lease: str) -> Question:
    """Put the own key if there is no other that hangs on a lease; else tell who came first."""
    nobody = (
        f'{{"key":"{keys.first}","range_end":"{keys.end}",'
        '"target":"LEASE","result":"EQUAL","lease":"0"}'
    )
    return Question(
        TXN,
        _txn(
            nobody,
            [_put(keys.own, value, lease)],
            [_get(keys.own), _ranked(keys, "ASCEND", 1, values=True)],
        ),
    )


def join(keys: EtcdKeys, value: str, lease: str, *, limit: int = 2) -> Question:
    """Put the own key at the end of the queue if it is not there yet; return the key before it.

    With a ``limit`` of 0 all the keys before it.
    """
    return Question(
        TXN,
        _txn(
            _is_created_at(keys.own, 0),
            [_put(keys.own, value, lease), _ranked(keys, "DESCEND", limit, values=True)],
            [_get(keys.own)],
        ),
    )


def look(
    entries: Sequence[tuple[EtcdKeys, int]],
    *,
    first: bool = False,
    limit: int = 1,
    values: bool = False,
) -> Question:
    """Ask for each own key, and for the one ahead of it; with ``first`` also who came first.

    With a ``limit`` of 0 for all that are ahead, with ``values`` also for what they ask for.
    """
    asked = []
    for keys, created in entries:
        ranked = _ranked(keys, "DESCEND", limit, before=created, values=values)
        asked += [_get(keys.own), ranked]
        if first:
            asked.append(_ranked(keys, "ASCEND", 1, values=True))
    return Question(TXN, _txn("", asked), reads=True)


def exists(keys: Sequence[str], *, values: bool = False) -> Question:
    """Ask for several keys alone."""
    return Question(TXN, _txn("", [_get(key, values=values) for key in keys]), reads=True)


def move(key: str, created: int, lease: str, value: str = "") -> Question:
    """Hang a key on another lease; its queue entry stays, and its value if none is given."""
    put = _put(key, value, lease) if value else _rehang(key, lease)
    return Question(TXN, _txn(_is_created_at(key, created), [put]))


def settle(keys: EtcdKeys, created: int, value: str, since: int) -> Question:
    """Write the slot under a key, if nothing was put into the queue after revision ``since``."""
    unchanged = (
        f'{{"key":"{keys.first}","range_end":"{keys.end}","target":"MOD","result":"LESS",'
        f'"mod_revision":"{since + 1}"}}'
    )
    compare = f"{_is_created_at(keys.own, created)},{unchanged}"
    return Question(TXN, _txn(compare, [_rewrite(keys.own, value)]))


def share(key: str, created: int, value: str) -> Question:
    """Have a key say that its lock is shared; its lease and its queue entry stay."""
    return Question(TXN, _txn(_is_created_at(key, created), [_rewrite(key, value)]))


def release(key: str, created: int) -> Question:
    """Remove the key of who holds the lock."""
    return Question(TXN, _txn(_is_created_at(key, created), [_delete(key)]))


def hand_over(key: str, created: int, waiter: Key, value: str) -> Question:
    """Remove a holder's key, and write its slot under the key of a waiter, if that is unchanged."""
    unchanged = _is_modified_at(waiter.key, waiter.modified)
    compare = f"{_is_created_at(key, created)},{unchanged}"
    return Question(TXN, _txn(compare, [_delete(key), _rewrite(waiter.key, value)]))


def nested(questions: Sequence[Question]) -> Question:
    """Ask several transactions in one; each is answered for by a part of the answer."""
    inner = [f'{{"request_txn":{each.body}}}' for each in questions]
    return Question(TXN, _txn("", inner), reads=all(each.reads for each in questions))


def withdraw(keys: EtcdKeys) -> Question:
    """Remove the key of a process that perhaps does not hold the lock, and tell who does."""
    return Question(TXN, _txn("", [_ranked(keys, "ASCEND", 1), _delete(keys.own)]))


def page(first: str, end: str, limit: int, revision: str = "0") -> Question:
    """Ask for the next keys and their values, all as of one revision."""
    return Question(
        RANGE,
        f'{{"key":"{first}","range_end":"{end}","limit":"{limit}","revision":"{revision}"}}',
        reads=True,
    )


def watch(key: str, end: str = "", *, puts: bool = False) -> Question:
    """Ask to be told from now on when a key, or one before ``end``, is removed, or ``puts``."""
    words = [f'"key":"{key}"']
    words += [f'"range_end":"{end}"'] if end else []
    words += [] if puts else ['"filters":["NOPUT"]']
    return Question("/v3/watch", f'{{"create_request":{{{",".join(words)}}}}}', reads=True)


def key_of(answer: Mapping[str, Any]) -> list[Key]:
    """Return the keys in one part of an answer."""
    return [Key.read(raw) for raw in answer.get("kvs", ())]


def in_the_way(keys: Iterable[Key], *, shared: bool, limit: int = 0) -> list[Key]:
    """Return those of some keys ahead that keep the next one from the lock.

    One that shares it is kept by none that does, one of a ``limit`` by so many and more.
    """
    found = [key for key in keys if key.asks and not (shared and key.shares)]
    return found if len(found) >= limit else []


def holders(queue: Sequence[Key]) -> Sequence[Key]:
    """Return those of a queue, in order, who hold the lock: the first, and who may as well."""
    if queue and queue[0].limit:
        return queue[: queue[0].limit]
    count = 0
    while count < len(queue) and queue[count].shares:
        count += 1
    return queue[: max(count, 1)]


def contenders(keys: Iterable[Key]) -> list[Key]:
    """Return those of some keys by which a process asks for the lock."""
    return [key for key in keys if key.asks]


def in_queue(said: Mapping[str, Any]) -> list[Key]:
    """Return the contenders of a `page`, in the order in which they came."""
    return sorted(contenders(key_of(said)), key=attrgetter("created"))
