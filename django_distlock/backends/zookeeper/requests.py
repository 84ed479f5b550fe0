"""The requests, as kazoo writes them, and the names of nodes.

Each lock is a container node named by its key; below it stand those who have it or wait for it,
as ephemeral nodes named by their owners and numbered by the server.
"""

from __future__ import annotations

import functools
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

from ...core.values import Claim

__all__ = ["Contender", "contenders", "creating", "data_of", "node_of", "words_of"]

EPHEMERAL_SEQUENTIAL: Final = 3
CONTAINER: Final = 4
LONG = 500  # bytes; data that is longer is compressed


@functools.lru_cache(1)
def kinds() -> Any:
    """Return kazoo's requests, and one that it lacks."""
    from kazoo.protocol import serialization

    class CreateContainer(serialization.Create2):  # type: ignore[misc]
        """A node that the server removes some time after its last child has gone."""

        __slots__ = ()
        type = 19

    serialization_kinds: dict[str, Any] = {
        "Container": CreateContainer,
        "Create": serialization.Create,
        "Create2": serialization.Create2,
        "Delete": serialization.Delete,
        "Exists": serialization.Exists,
        "GetChildren": serialization.GetChildren,
        "GetData": serialization.GetData,
        "SetData": serialization.SetData,
        "Sync": serialization.Sync,
    }
    return type("Kinds", (), serialization_kinds)


@functools.lru_cache(1)
def through_leader() -> frozenset[int]:
    """Return the types of the requests that no server answers without its leader."""
    those = ("Container", "Create", "Create2", "Delete", "SetData", "Sync")
    return frozenset(getattr(kinds(), each).type for each in those)


@dataclass(frozen=True, slots=True)
class Contender:
    """One who holds a lock or waits for it, by the name of its node."""

    number: int
    owner: str
    node: str


def contenders(children: list[str]) -> list[Contender]:
    """Return who stands in a lock's queue, the holder first; what is none of ours is left out."""
    found = []
    for child in children:
        owner, _, number = child.partition("-")
        try:
            # After 2**31 nodes the server counts on from the lowest negative number.
            found.append(Contender(int(number) & 0xFFFFFFFF, _long_owner(owner), child))
        except ValueError:
            continue
    found.sort(key=lambda each: each.number)
    return found


def node_of(owner: str) -> str:
    """Return what the name of an owner's node begins with."""
    return f"{_short_owner(owner)}-"


def _short_owner(owner: str) -> str:
    """Return an owner as it can stand in a path: as it is, unless it is none of ours."""
    if owner.isascii() and owner.isalnum() and not owner.startswith("x"):
        return owner
    return "x" + owner.encode("utf-8", "surrogatepass").hex()


def _long_owner(word: str) -> str:
    return bytes.fromhex(word[1:]).decode("utf-8", "surrogatepass") if word[:1] == "x" else word


def data_of(claim: Claim) -> bytes:
    """Return what stands in a claim's node, for people: the lock's name and the note."""
    data = json.dumps([claim.name, claim.note]).encode("ascii")
    return data if len(data) <= LONG else zlib.compress(data)


def words_of(data: bytes | None) -> tuple[str, str]:
    """Return the name and the note that stand in a node; what is none of ours has neither."""
    try:
        text = data or b""
        name, note = json.loads(text if text.startswith(b"[") else zlib.decompress(text))
    except (ValueError, TypeError, zlib.error, RecursionError):
        return "", ""
    return (name, note) if isinstance(name, str) and isinstance(note, str) else ("", "")


def creating(path: str, claim: Claim, acl: Any) -> Any:
    """Return the request for a place in a lock's queue."""
    return kinds().Create2(
        f"{path}/{node_of(claim.owner)}", data_of(claim), acl, EPHEMERAL_SEQUENTIAL
    )
