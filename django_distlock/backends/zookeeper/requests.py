"""The requests, as kazoo writes them, and the names of nodes.

Each lock is a container node named by its key; below it are those that hold it or wait for it,
as ephemeral nodes named by their owners and numbered by the server.
"""

from __future__ import annotations

import functools
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

from ...core.values import Claim

__all__ = [
    "CONTAINER",
    "Contender",
    "ahead_of",
    "contenders",
    "creating",
    "data_of",
    "node_of",
    "of_slots",
    "sharers",
    "shares",
    "slot_of",
    "slots_of",
    "words_of",
]

EPHEMERAL_SEQUENTIAL: Final = 3
CONTAINER: Final = 4
SHARED: Final = "s"  # what follows the owner's word in the name of one that shares
LIMITED: Final = "l"  # the same of one that names a limit, and then the limit
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
        "GetChildren2": serialization.GetChildren2,
        "GetData": serialization.GetData,
        "SetData": serialization.SetData,
        "Sync": serialization.Sync,
        "Transaction": serialization.Transaction,
    }
    return type("Kinds", (), serialization_kinds)


@functools.lru_cache(1)
def through_leader() -> frozenset[int]:
    """Return the types of the requests that no server answers without its leader."""
    those = ("Container", "Create", "Create2", "Delete", "SetData", "Sync", "Transaction")
    return frozenset(getattr(kinds(), each).type for each in those)


@dataclass(frozen=True, slots=True)
class Contender:
    """One who holds a lock or waits for it, by the name of its node."""

    number: int
    owner: str
    node: str
    shared: bool = False
    limit: int = 0
    """How many may hold the lock at once; 0: it has no limit."""


def contenders(children: list[str]) -> list[Contender]:
    """Return the contenders of a lock, the holder first; foreign nodes are left out."""
    found = []
    for child in children:
        word, _, number = child.partition("-")
        owner, _, mode = word.partition(".")
        try:
            # After 2**31 nodes the server counts on from the lowest negative number.
            position = int(number) & 0xFFFFFFFF
            limit = int(mode.removeprefix(LIMITED)) if mode.startswith(LIMITED) else 0
            found.append(Contender(position, _long_owner(owner), child, mode == SHARED, limit))
        except ValueError:
            continue
    found.sort(key=lambda each: each.number)
    return found


def ahead_of(queue: list[Contender], node: str) -> list[str] | None:
    """Return the nodes that keep another one from its lock; None if that is not in the queue.

    One that shares it is kept by those that want it alone, though they wait, and one of a limit by
    so many and more.
    """
    ahead: list[Contender] = []
    for each in queue:
        if each.node == node:
            found = [other.node for other in ahead if not (each.shared and other.shared)]
            return found if len(found) >= each.limit else []
        ahead.append(each)
    return None


def sharers(queue: list[Contender]) -> list[Contender]:
    """Return the first of a queue, and those right behind it that may hold the lock with it.

    Those of its limit do; those that share do if it shares: by its name, or by what stands in it.
    """
    if queue[0].limit:
        return queue[: queue[0].limit]
    count = 1
    while count < len(queue) and queue[count].shared:
        count += 1
    return queue[:count]


def node_of(owner: str, *, shared: bool = False, limit: int = 0) -> str:
    """Return what the name of an owner's node begins with."""
    mode = f".{LIMITED}{limit}" if limit else f".{SHARED}" if shared else ""
    return f"{_short_owner(owner)}{mode}-"


def _short_owner(owner: str) -> str:
    """Return an owner as it can stand in a path: as it is, unless it is none of ours."""
    if owner.isascii() and owner.isalnum() and not owner.startswith("x"):
        return owner
    return "x" + owner.encode("utf-8", "surrogatepass").hex()


def _long_owner(word: str) -> str:
    return bytes.fromhex(word[1:]).decode("utf-8", "surrogatepass") if word[:1] == "x" else word


def data_of(claim: Claim, slot: int | None = None) -> bytes:
    """Return what is stored in a claim's node: the lock's name and the holder info.

    And whether others may share it, which its name may not say: see
    `ZooKeeperAlgorithm.renew`. Under a limit the slot instead.
    """
    words: list[Any] = [claim.name, claim.note]
    if claim.limit:
        words += [0, slot]
    elif claim.shared:
        words.append(1)
    data = json.dumps(words).encode("ascii")
    return data if len(data) <= LONG else zlib.compress(data)


def words_of(data: bytes | None) -> tuple[str, str]:
    """Return the name and the holder info in a node; a foreign node has neither."""
    try:
        name, note, *_ = _read(data)
    except (ValueError, TypeError, zlib.error, RecursionError):
        return "", ""
    return (name, note) if isinstance(name, str) and isinstance(note, str) else ("", "")


def shares(data: bytes | None) -> bool:
    """Return whether a node says that others may hold its lock, too."""
    try:
        return bool(_read(data)[2:3] == [1])
    except (ValueError, TypeError, zlib.error, RecursionError):
        return False


def slot_of(data: bytes | None) -> int | None:
    """Return the slot that is stored in a node, if there is one."""
    try:
        (slot,) = _read(data)[3:4]
    except (ValueError, TypeError, zlib.error, RecursionError):
        return None
    return slot if isinstance(slot, int) else None


def of_slots(holders: list[int | None]) -> bytes:
    """Return what is stored in a lock's node under a limit: the numbers of the holders, by slot."""
    return json.dumps(holders, separators=(",", ":")).encode("ascii")


def slots_of(data: bytes | None) -> list[int | None]:
    """Return the numbers that `of_slots` has written; none if another wrote there."""
    try:
        numbers = json.loads(data or b"[]")
    except (ValueError, RecursionError):
        return []
    good = isinstance(numbers, list) and all(isinstance(each, int | None) for each in numbers)
    return numbers if good else []


def _read(data: bytes | None) -> Any:
    text = data or b""
    return json.loads(text if text.startswith(b"[") else zlib.decompress(text))


def creating(path: str, claim: Claim, acl: Any) -> Any:
    """Return the request for an entry in a lock's queue.

    Under a limit it has the first slot, which it has if it finds itself alone.
    """
    node = node_of(claim.owner, shared=claim.shared, limit=claim.limit)
    data = data_of(claim, 0 if claim.limit else None)
    return kinds().Create2(f"{path}/{node}", data, acl, EPHEMERAL_SEQUENTIAL)
