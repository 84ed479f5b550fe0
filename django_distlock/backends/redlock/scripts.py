"""The scripts that the nodes run, and what is stored in a node's value of a lock."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache

from ...core.names import unreadable
from ..redis.commands import source_of

__all__ = ["Script", "Value", "digest", "script"]


@dataclass(frozen=True, slots=True)
class Script:
    """A script by its name, as it is sent."""

    name: str
    source: str = field(repr=False)
    digest: str = field(repr=False)


@cache
def script(name: str) -> Script:
    """Return the script of that name, read once."""
    source = source_of(__package__, name)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def digest(owner: str) -> str:
    """Return by what an owner is known to its rivals."""
    return hashlib.sha1(owner.encode(), usedforsecurity=False).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Value:
    """What a node has stored of a held lock, see `acquire.lua`."""

    token: int
    acquired: int
    owner: str
    name: str
    note: str

    @classmethod
    def of(cls, raw: bytes) -> Value | None:
        """Read a value; None when it is not one of ours."""
        head, text = raw[:45], raw[61:].decode("utf-8", "surrogateescape")
        owner, _, rest = text.partition("\n")
        name, _, note = rest.partition("\n")
        if len(head) != 45 or not head.isdigit() or not owner:
            return None
        return cls(int(head[13:29]), int(head[29:]), owner, unreadable(name), note)
