"""What the nodes show to people: who holds a lock, and what each node says of it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...core.values import Cleaned, CleanPolicy, HolderInfo, LockInfo, moment
from .algorithm import Names, each_vote, report
from .rounds import Answer, Answers, Operation, QuorumError, Round, Value, script
from .votes import Tally, Verdict, holders_of, quorum

__all__ = ["QuorumInfo", "clean", "look", "page"]

PAGE = 500


@dataclass(frozen=True, slots=True)
class QuorumInfo(LockInfo):
    """A lock as a quorum of nodes shows it; ``votes`` is what each node says, by its address."""

    votes: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class NodeView:
    """What one node shows of a held lock: the ms left, the node's clock, and the value."""

    left: int
    now: int
    value: Value


def look(names: Names, key: str, limit: float, node: Sequence[str]) -> Operation[list[LockInfo]]:
    """Return who holds a lock on a quorum, with each node's vote."""

    def decided(answers: Answers) -> bool:
        owners = Counter(seen.value.owner for each in answers for seen in _views(each))
        most = max(owners.values(), default=0)
        free = sum(isinstance(each, list) for each in answers) - most
        return Tally(len(node), most, free).verdict is not Verdict.OPEN

    answers = yield Round(script("look"), [(names.lock(key),)], limit, decided, keys=1)
    _need_quorum(answers, node)
    views = {name: _views(each) for name, each in zip(node, answers, strict=True)}
    votes = each_vote(answers, node, lambda said: "held" if said else "free")
    for name, seen in views.items():
        if seen:
            held = [f"with token {each.value.token} for {each.left / 1000:g} s" for each in seen]
            votes[name] = f"held {', '.join(held)}"
    return _infos(views, sum(not answered(each) for each in answers), votes)


def page(
    names: Names, after: str, limit: float, node: Sequence[str]
) -> Operation[tuple[str, list[tuple[bytes, LockInfo]]]]:
    """Return the next held locks in the order of their keys, and where to go on; "" at the end.

    Each node gives a page of its own; what is beyond the last key of the shortest waits for the
    next round, as that node may have it, too.
    """
    answers = yield Round(script("list"), [(names.index, after, PAGE)], limit, keys=1)
    _need_quorum(answers, node)
    found: dict[bytes, dict[str, list[NodeView]]] = defaultdict(lambda: defaultdict(list))
    ends = []
    for name, each in zip(node, answers, strict=True):
        if not isinstance(each, list) or isinstance(each[0], Exception):
            continue
        following, now, *rest = each[0]
        if following:
            ends.append(following[1:])
        for key, left, raw in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            if (value := Value.of(raw)) is not None:
                found[key][name].append(NodeView(left, now, value))
    end = min(ends, default=b"")
    silent = [name for name, each in zip(node, answers, strict=True) if not answered(each)]
    shown = []
    for key, views in sorted(found.items()):
        votes = {name: "held" if name in views else "free" for name in node}
        votes |= dict.fromkeys(silent, "no answer")
        if not end or key <= end:
            shown += [(key, info) for info in _infos(views, len(silent), votes)]
    return f"({end.decode()}" if end else "", shown


def clean(
    names: Names, policy: CleanPolicy, cursor: str, limit: float, node: Sequence[str]
) -> Operation[Cleaned]:
    """Take idle entries out of the index of one node after the other.

    ``cursor`` is the node's number, how many nodes before it have failed, and the entry there. A
    node that fails is left to the next cleaning, unless there is no quorum of the others.
    """
    number, failed, after = cursor.split(" ", 2) if cursor else ("0", "0", "-")
    at, failures = int(number), int(failed)
    words = (names.index, after, policy.batch, round(policy.older_than * 1000), int(policy.dry_run))
    answers = yield Round(script("clean"), [words], limit, nodes=[at], insist=True, keys=1)
    answer = answers[at]
    following, idle, seen = b"", 0, 0
    if isinstance(answer, list) and not isinstance(answer[0], Exception):
        following, idle, seen = answer[0]
    else:
        failures += 1
        if failures > len(node) - quorum(len(node)):
            raise QuorumError(report(answers, node, str))
    if following:
        return Cleaned(removed=idle, seen=seen, cursor=f"{at} {failures} {following.decode()}")
    following_node = f"{at + 1} {failures} -" if at + 1 < len(node) else None
    return Cleaned(removed=idle, seen=seen, cursor=following_node)


def answered(answer: Answer) -> bool:
    """Return whether a node answered, and not by an error."""
    return isinstance(answer, list) and not isinstance(answer[0], Exception)


def _need_quorum(answers: Answers, node: Sequence[str]) -> None:
    if sum(map(answered, answers)) < quorum(len(node)):
        raise QuorumError(report(answers, node, lambda said: "answered"))


def _views(answer: Answer) -> list[NodeView]:
    if not isinstance(answer, list) or isinstance(answer[0], Exception):
        return []
    said = answer[0]
    found = zip(said[::3], said[1::3], map(Value.of, said[2::3]), strict=True)
    return [NodeView(left, now, value) for left, now, value in found if value is not None]


def _infos(
    views: Mapping[str, Sequence[NodeView]], silent: int, votes: Mapping[str, str]
) -> list[LockInfo]:
    """Return the lock as the nodes of each holder show it, of those that have a quorum."""
    by_owner: dict[str, list[NodeView]] = defaultdict(list)
    for each in views.values():
        for seen in each:
            by_owner[seen.value.owner].append(seen)
    holders = holders_of({owner: len(mine) for owner, mine in by_owner.items()}, silent, len(votes))
    infos: list[LockInfo] = [_info(by_owner[owner], votes) for owner in holders]
    # Only those who share it are several.
    return infos if all(info.shared for info in infos) else infos[:1]


def _info(mine: Sequence[NodeView], votes: Mapping[str, str]) -> QuorumInfo:
    first = mine[0].value
    note = HolderInfo.loads(first.note)
    return QuorumInfo(
        name=first.name,
        holder=note.holder,
        fencing_token=_token(seen.value.token for seen in mine),
        acquired_at=moment(min(seen.value.acquired for seen in mine)),
        # The clocks of the nodes differ: it is that of the node whose lease ends last.
        expires_at=moment(max(seen.now + 1000 * seen.left for seen in mine)),
        metadata=note.metadata,
        ttl=note.ttl,
        renewed=note.renewed,
        min_hold=note.min_hold,
        shared=note.shared,
        owner=first.owner,
        votes=votes,
    )


def _token(tokens: Iterable[int]) -> int:
    """Return the token that most have; of those that as many have, the highest."""
    counts = Counter(tokens)
    return max(counts, key=lambda token: (counts[token], token))
