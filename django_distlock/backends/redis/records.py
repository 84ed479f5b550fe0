"""What stands in Redis: the names of keys, and a record, written and read as by holders.lua."""

from __future__ import annotations

import base64
import binascii
import functools
import re
from dataclasses import dataclass
from typing import Final

from ...core.members import Members
from ...core.names import readable

__all__ = [
    "TAGS",
    "RedisKeys",
    "RedisRecord",
    "digest_of",
    "held_record",
    "index_of",
    "kept",
    "keys_of",
    "long_owner",
    "mailbox_of",
    "read",
    "record_of",
    "several_record",
    "short_owner",
    "tag_of",
    "words_of",
]

TAGS: Final = 64
"""Hash tags: so many nodes can share the locks of a cluster, each script keeping to one of them."""


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The keys of one name; all of them have one hash tag."""

    record: bytes
    index: bytes
    queue: bytes
    digest: bytes
    base: bytes
    """What the keys of its waiters begin with."""


@functools.lru_cache(1024)
def keys_of(base: str, key: str) -> RedisKeys:
    """Return the keys of a claim's key, 64 hexadecimal digits."""
    digest = digest_of(key)
    start = _start(base, tag_of(key))
    return RedisKeys(start + digest, start + b"i", start + b"q:" + digest, digest, start)


def record_of(base: str, key: str) -> bytes:
    """Return the record's key alone, of one of very many claims."""
    return _start(base, tag_of(key)) + digest_of(key)


def tag_of(key: str) -> int:
    """Return the number of a claim's hash tag."""
    return int(key[:2], 16) % TAGS


def digest_of(key: str) -> bytes:
    """Return a claim's key in 27 letters: it is in memory twice for each held lock.

    The first 160 bits of the SHA-256 are as hard to meet twice as git's commits.
    """
    return base64.urlsafe_b64encode(bytes.fromhex(key[:40])).rstrip(b"=")


def index_of(base: str, tag: int) -> bytes:
    """Return the key of the index of a tag: the digests of the names that are held."""
    return _start(base, tag) + b"i"


def mailbox_of(base: str, tag: int, owner: str) -> bytes:
    """Return the key of the mailbox of a process, or of an event loop."""
    return _start(base, tag) + b"m:" + owner.encode()


@functools.lru_cache(1024)
def _start(base: str, tag: int) -> bytes:
    return f"{base}:{{{tag:02d}}}:".encode("utf-8", "surrogatepass")


_HELD = re.compile(r"[-+](\d{16})(\d{9})([^\n]*)\n([^\n]*)\n(.*)", re.DOTALL)
_SEVERAL = re.compile(r"[*#](\d{16})(\d{9})([^\n]*)\n(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RedisRecord:
    """What is kept of a name; ``owner`` is empty when it is not held."""

    token: int
    retention: int = 0
    """In ms."""
    owner: str = ""
    name: str = ""
    note: str = ""
    queued: bool = False
    """Whether others may be in its queue."""
    members: Members | None = None
    """The holders, where several may hold it; there is no owner then."""


def read(record: bytes | None) -> RedisRecord | None:
    """Read a record as holders.lua writes it; what is none of ours is no record."""
    if record is None:
        return None
    text = record.decode("ascii", "replace")
    if found := _HELD.fullmatch(text):
        token, retention, owner, name, note = found.groups()
        return RedisRecord(
            int(token),
            int(retention) * 1000,
            long_owner(owner),
            name,
            note,
            text[0] == "+",
        )
    if (found := _SEVERAL.fullmatch(text)) and (members := Members.loads(found[4])) is not None:
        all_of = tuple(each._replace(owner=long_owner(each.owner)) for each in members.all)
        members = members._replace(all=all_of)
        token, retention = int(found[1]), int(found[2]) * 1000
        return RedisRecord(token, retention, "", found[3], "", text[0] == "#", members)
    return RedisRecord(int(text)) if re.fullmatch(r"[0-9]{1,19}", text) else None


def kept(retention: int) -> str:
    """Return a retention of so many ms as a record has it: whole seconds."""
    return f"{-(-retention // 1000):09d}"


def held_record(token: int, retention: int, owner: str, words: str) -> str:
    """Return the record of a name that is held and has no queue."""
    return f"-{token:016d}{kept(retention)}{short_owner(owner).decode()}\n{words}"


def several_record(token: int, retention: int, name: str, members: Members) -> str:
    """Return the record of a name that several hold."""
    short = tuple(
        each._replace(
            owner=short_owner(each.owner).decode("utf-8", "surrogatepass"),
        )
        for each in members.all
    )
    text = members._replace(all=short).dumps()
    return f"*{token:016d}{kept(retention)}{readable(name)}\n{text}"


def words_of(name: str, note: str) -> str:
    """Return what is stored in a record for people: the name, a line feed and the holder info."""
    return f"{readable(name)}\n{note}"


def short_owner(owner: str) -> bytes:
    """Return an owner of 32 hexadecimal digits in 22 letters, any other behind a sign."""
    try:
        raw = bytes.fromhex(owner)
    except ValueError:
        return b"=" + owner.encode("utf-8", "surrogatepass")
    if len(raw) != 16 or raw.hex() != owner:
        return b"=" + owner.encode("utf-8", "surrogatepass")
    return binascii.b2a_base64(raw, newline=False)[:22]


def long_owner(text: str) -> str:
    """Return the owner that ``short_owner`` wrote; what it cannot have written stays as it is."""
    if text.startswith("="):
        return text[1:]
    try:
        raw = binascii.a2b_base64(text + "==") if len(text) == 22 else b""
    except ValueError:
        return text
    return raw.hex() if len(raw) == 16 else text
