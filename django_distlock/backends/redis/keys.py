"""What things are called in Redis."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from typing import Final

__all__ = [
    "TAGS",
    "RedisKeys",
    "digest_of",
    "index_of",
    "keys_of",
    "mailbox_of",
    "record_of",
    "tag_of",
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
