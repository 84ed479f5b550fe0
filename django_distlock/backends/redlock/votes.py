"""Counting votes: what N independent nodes said, and what follows from it. Pure.

A *quorum* is more than half of all the nodes that there are, not of those that answered: any two
quorums share a node, and that is all that Redlock rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "Standing",
    "Tally",
    "Verdict",
    "agreed_token",
    "holders_of",
    "quorum",
    "standing",
    "time_to_quorum",
]


class Verdict(Enum):
    """What the votes of a round come to."""

    YES = "yes"
    """A quorum said yes."""
    NO = "no"
    """So many said no that no quorum can say yes any more."""
    DOWN = "down"
    """No quorum has answered, or can any more."""
    SPLIT = "split"
    """All have answered that will, a quorum of them, and it is neither yes nor no."""
    OPEN = "open"
    """It depends on those that have not answered yet."""


def quorum(nodes: int) -> int:
    """Return how many of so many nodes are more than half."""
    return nodes // 2 + 1


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of the ``nodes`` said yes, said no, and failed; the others have yet to answer."""

    nodes: int
    yes: int = 0
    no: int = 0
    failed: int = 0

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        needed = quorum(self.nodes)
        if self.yes >= needed:
            return Verdict.YES
        if self.no > self.nodes - needed:
            return Verdict.NO
        if self.failed > self.nodes - needed:
            return Verdict.DOWN
        if self.yes + self.no + self.failed < self.nodes:
            return Verdict.OPEN
        return Verdict.SPLIT


class Standing(Enum):
    """The standing of a contender without a quorum."""

    BEATEN = "beaten"
    """Another has a quorum, or may have one with nodes that did not answer."""
    LEADING = "leading"
    """No contender has; this one keeps its votes, and the others release theirs."""
    TRAILING = "trailing"
    """None has, and another one stays."""


def standing(me: str, mine: int, rivals: Sequence[str], silent: int, nodes: int) -> Standing:
    """Return where ``me`` stands with ``mine`` nodes, when the others are held by ``rivals``.

    Several that ask at once may split the votes. Would all make room and come again, they might
    split them again and again; so the one with most nodes stays, and of those that have as many,
    the one that is first in the order of the owners' digests.
    """
    counts = Counter(rivals)
    if not counts:
        return Standing.LEADING
    top = max(counts.values())
    if top + silent >= quorum(nodes):
        return Standing.BEATEN
    best = min((-count, rival) for rival, count in counts.items())
    return Standing.LEADING if (-mine, me) < best else Standing.TRAILING


def agreed_token(tokens: Mapping[int, int], nodes: int) -> tuple[int, list[int]]:
    """Return the token of a grant, and the nodes that have to be told of it first.

    ``tokens`` are those that the granting nodes drew, a quorum or more: each is greater than what
    its node had stored. A token that a quorum has drawn needs no second round, as every quorum of
    earlier grants shares a node with this one, which has drawn more than their token. Else it is
    the highest, and those that drew a lower one have to store it.
    """
    needed = quorum(nodes)
    if len(tokens) < needed:
        raise ValueError(f"{len(tokens)} of {nodes} nodes are no quorum")
    highest = max(tokens.values())
    if highest == min(tokens.values()):
        return highest, []  # as all have seen the same proposal
    token, count = Counter(tokens.values()).most_common(1)[0]
    if count >= needed:
        return token, []
    return highest, [node for node, drawn in tokens.items() if drawn < highest]


def time_to_quorum(left: Sequence[float], nodes: int) -> float | None:
    """Return when so many of the refusing nodes are free that a quorum can grant; None: now.

    ``left`` is, for each node that refused, what is left of the lease there.
    """
    must_end = len(left) - (nodes - quorum(nodes))
    return sorted(left)[must_end - 1] if must_end > 0 else None


def holders_of(owners: Mapping[str, int], silent: int, nodes: int) -> list[str]:
    """Return who holds the lock on a quorum, or may, seeing that ``silent`` nodes said nothing.

    ``owners`` are those that the answering nodes have, each with how many of them; those with most
    nodes come first. One that may have a quorum only with nodes that are silent is shown too: a
    lock that seems to be free and is not is worse, at three in the morning, than one that seems to
    be held.
    """
    by_count = sorted(owners, key=lambda owner: -owners[owner])
    return [owner for owner in by_count if owners[owner] + silent >= quorum(nodes)]
