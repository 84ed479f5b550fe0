"""What is wrong in a history: the tokens give the order of the grants, so each check is a sort."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from django_distlock.leader import RETRIES

from .history import Call

__all__ = ["Hold", "Promise", "Verdict", "Violation", "holds", "judge"]


@dataclass(frozen=True, slots=True)
class Promise:
    """What a backend promises, in seconds.

    ``exclusive``: no two holders are sure at once, whatever happens. ``ttl``: what was asked for.
    ``vanished``: how long a lock stays held whose holder has vanished. ``recovery``: how long after
    a fault of the store the waiters may need besides.
    """

    ttl: float
    vanished: float
    recovery: float = 2.0
    exclusive: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and the calls that show it."""

    kind: str
    text: str
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.text}"]
        for call in sorted(self.calls, key=lambda each: each.begin):
            end = "never" if call.end is None else f"{call.end:.6f}"
            lines.append(
                f"  {call.begin:.6f} to {end}  {call.proc}  {call.op} {call.name!r} "
                f"{call.outcome} {call.facts}"
            )
        return "\n".join(lines)


@dataclass
class Verdict:
    """How much was seen, and what was wrong in it.

    ``by_name`` has the clients' calls, each counted once: not what the resource says of a write.
    """

    by_name: Counter[str] = field(default_factory=Counter)
    grants: int = 0
    writes: int = 0
    refused_writes: int = 0
    losses: int = 0
    faults: int = 0
    longest_gap: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    @property
    def operations(self) -> int:
        """How many calls of clients there were."""
        return self.by_name.total()


@dataclass(frozen=True, slots=True)
class Hold:
    """From when to when the holder of a token was sure to hold, as far as it is known."""

    token: int
    begin: float
    end: float
    calls: tuple[Call, ...]
    shared: bool = False
    limit: int = 0
    slot: int | None = None

    def bears(self, others: Sequence[Hold]) -> bool:
        """Return whether all of these may be held at the same time as this one."""
        if self.limit:
            slots = {each.slot for each in others}
            same = all(each.limit == self.limit for each in others)
            return same and len(others) < self.limit and self.slot not in slots
        return not others or (self.shared and all(each.shared for each in others))


def holds(calls: Iterable[Call]) -> list[Hold]:
    """Return the holds of one name, by token.

    A holder is sure at the beginning of every check, renewal and release that then succeeded: what
    holds later has held since the grant. So it is after its acquisition, at ``sure``, when it asks
    its lease at once; None: stopped in between, it found out then that it was too late.
    """
    by_token: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        if call.outcome == "ok" and call.token and call.op in ("acquire", *_SURE):
            by_token[call.token].append(call)
    found = []
    for token, mine in sorted(by_token.items()):
        granted = [call.facts.get("sure", call.end) for call in mine if call.op == "acquire"]
        moments = [call.begin for call in mine if call.op in _SURE]
        moments += [moment for moment in granted if moment is not None]
        if moments:
            facts = mine[0].facts
            mode = facts.get("shared", False), facts.get("limit", 0), facts.get("slot")
            found.append(Hold(token, min(moments), max(moments), tuple(mine), *mode))
    return found


_SURE = ("check", "renew", "release")
_OF_CLIENTS = ("acquire", "again", "write", *_SURE)


def judge(calls: Sequence[Call], promise: Promise) -> Verdict:
    """Judge a history: of the clients, of the guarded resource, and of the faults."""
    verdict = Verdict(by_name=Counter(call.name for call in calls if call.op in _OF_CLIENTS))
    verdict.faults = sum(call.op == "fault" for call in calls)
    by_name: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.op != "fault":
            by_name[call.name].append(call)
    outages = _disjoint(
        _window(call, promise) for call in calls if call.op == "fault" and call.facts.get("store")
    )
    for name, mine in by_name.items():
        accepted = [call for call in mine if call.op == "accept"]
        verdict.writes += len(accepted)
        verdict.refused_writes += sum(call.op == "refuse" for call in mine)
        verdict.losses += sum(call.op == "check" and call.outcome == "fail" for call in mine)
        verdict.violations += _resource(accepted)
        verdict.violations += _written(mine, accepted)
        verdict.violations += _order(mine)
        found = holds(mine)
        verdict.grants += len(found)
        broken = {call.token: call for call in mine if call.op == "break" and _may_be(call)}
        if promise.exclusive:
            verdict.violations += _exclusion(found, broken)
        verdict.violations += _noticed(mine, broken, promise)
        gap, late = _liveness(name, mine, outages, promise)
        verdict.longest_gap = max(verdict.longest_gap, gap)
        verdict.violations += late
        verdict.violations += [
            Violation("leak", "it is left in the store after all have gone", (call,))
            for call in mine
            if call.op == "leak"
        ]
    return verdict


def _may_be(call: Call) -> bool:
    return call.outcome != "fail"


def _window(fault: Call, promise: Promise) -> tuple[float, float]:
    end = math.inf if fault.end is None else fault.end
    return fault.begin, end + promise.recovery


def _disjoint(windows: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the windows in order, those that overlap as one: a long run has hundreds."""
    found: list[tuple[float, float]] = []
    for first, last in sorted(windows):
        if found and first <= found[-1][1]:
            begun, ended = found.pop()
            first, last = begun, max(ended, last)
        found.append((first, last))
    return found


def _resource(accepted: Sequence[Call]) -> Iterator[Violation]:
    """No write is accepted after a newer token, nor of two owners with one; none is lost."""
    newest: Call | None = None
    for number, call in enumerate(accepted, start=1):
        if call.facts.get("count") != number:
            text = f"the counter is {call.facts.get('count')} after {number} accepted writes"
            yield Violation("lost write", text, (call,))
            return
        if newest is not None:
            if call.token < newest.token:
                text = f"{call.token} was written after {newest.token}"
                yield Violation("stale write", text, (newest, call))
            elif call.token == newest.token and call.owner != newest.owner:
                yield Violation("shared token", "two owners wrote with one token", (newest, call))
        newest = call


def _written(calls: Sequence[Call], accepted: Sequence[Call]) -> Iterator[Violation]:
    """Return writes that were accepted of a token that nobody can have been granted."""
    granted = {call.token for call in calls if call.op == "acquire" and call.outcome == "ok"}
    for call in accepted:
        if call.token not in granted:
            yield Violation("unknown token", "nobody was granted it", (call,))


def _order(calls: Sequence[Call]) -> Iterator[Violation]:
    """Tokens are unique, and rise from a grant to one that was asked for after its return."""
    granted = [call for call in calls if call.op == "acquire" and call.outcome == "ok"]
    granted = [call for call in granted if not call.facts.get("again")]
    by_token: dict[int, Call] = {}
    for call in granted:
        other = by_token.setdefault(call.token, call)
        if other is not call:
            yield Violation("shared token", "it was granted twice", (other, call))
    earliest: Call | None = None  # of those with a higher token, the one that returned first
    for call in sorted(granted, key=lambda each: each.token, reverse=True):
        if earliest is not None and earliest.end is not None and call.begin > earliest.end:
            text = f"{call.token} was asked for after {earliest.token} had been granted"
            yield Violation("token order", text, (earliest, call))
        if earliest is None or (call.end or 0) < (earliest.end or 0):
            earliest = call


def _exclusion(found: Sequence[Hold], broken: Mapping[int, Call]) -> Iterator[Violation]:
    """No two were sure at once, or more than a limit, or a writer beside a reader.

    The one whose lock was broken may be, see `_noticed`.
    """
    sure: list[Hold] = []
    for hold in sorted(found, key=lambda each: each.begin):
        if hold.token in broken:
            continue
        sure = [each for each in sure if each.end > hold.begin]
        if not hold.bears(sure):
            tokens = " and ".join(str(each.token) for each in (*sure, hold))
            end = min(each.end for each in (*sure, hold))
            calls = tuple(call for each in (*sure, hold) for call in each.calls)
            kind = "two holders" if hold.limit == 0 else "too many holders"
            yield Violation(kind, f"{tokens}, for {end - hold.begin:.6f} s", calls)
        sure.append(hold)


def _noticed(
    calls: Sequence[Call], broken: Mapping[int, Call], promise: Promise
) -> Iterator[Violation]:
    """A holder whose lock was broken learns of it by its next renewal, at the latest by its ttl."""
    for call in calls:
        other = broken.get(call.token)
        if other is None or other.end is None or call.op not in _SURE or call.outcome != "ok":
            continue
        if call.begin > other.end + promise.ttl:
            text = f"{call.begin - other.end:.3f} s after it was broken"
            yield Violation("loss not noticed", text, (other, call))


def _liveness(
    name: str, calls: Sequence[Call], outages: Sequence[tuple[float, float]], promise: Promise
) -> tuple[float, list[Violation]]:
    """While somebody waited, and the store was there, the lock did not stay free for long."""
    sure = sorted(
        moment
        for hold in holds(calls)
        for moment in (hold.begin, hold.end, *(call.begin for call in hold.calls))
    )
    longest, late = 0.0, []
    bound = promise.vanished + promise.recovery
    for call in calls:
        if call.op != "acquire" or call.end is None or call.facts.get("wait", 0) <= 0:
            continue
        # Only its own waiting is looked at: who waited in vain, or long, while nobody was sure.
        begin, end = call.begin, call.end
        # A candidate waits without end, and pauses between attempts while the store fails.
        patience = bound + (RETRIES.longest if math.isinf(call.facts["wait"]) else 0.0)
        places = sure[bisect_right(sure, begin) : bisect_right(sure, end)]
        for before, after in zip([begin, *places], [*places, end], strict=True):
            gap = after - before - _covered(before, after, outages)
            longest = max(longest, gap)
            if gap > patience:
                text = f"nobody was sure of {name!r} for {gap:.3f} s though it was waited for"
                late.append(Violation("lost wake-up", text, (call,)))
    return longest, late


def _covered(begin: float, end: float, windows: Sequence[tuple[float, float]]) -> float:
    """Return how much of the time from ``begin`` to ``end`` lies in the windows of `_disjoint`."""
    covered = 0.0
    for number in range(bisect_left(windows, begin, key=itemgetter(1)), len(windows)):
        first, last = windows[number]
        if first >= end:
            break
        covered += min(end, last) - max(begin, first)
    return covered
