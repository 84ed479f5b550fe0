"""What is asked of the nodes, round by round, and what follows from their votes. Pure.

An operation is a generator: it yields a `Round`, and is sent what each node answered. `pool.py` and
`async_pool.py` carry rounds out, in threads and on event loops.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...core.names import readable
from ...core.values import Claim, Grant, Refusal
from .rounds import (
    Answer,
    Answers,
    NotAskedError,
    Operation,
    QuorumError,
    Round,
    digest,
    script,
    waiting_node,
)
from .votes import Standing, Tally, Verdict, agreed_token, quorum, standing, time_to_quorum

__all__ = [
    "Freed",
    "Names",
    "acquire",
    "each_vote",
    "release",
    "renew",
    "report",
]

RESTORED = "0" * 16  # the attempt that is never undone
SHARED = "shared"
"""In the place of the digest of an owner: all who share a lock are one rival to the others."""
RETRY = (0.001, 0.005)  # seconds between two tries of contenders that split the votes
WAITED_FOR = 2  # what a node answers that freed a lock with a waiter
UNDO = 0.25  # seconds that an attempt that failed waits for its undoing, at most


class Freed(NamedTuple):
    """What came of a release."""

    ours: bool
    """Whether a quorum had it, or may have had it."""
    waited_for: bool
    """Whether there is a waiter, and was woken by it."""


@dataclass(frozen=True, slots=True)
class Names:
    """How the keys begin, and how long an idle name is kept, in milliseconds."""

    base: str
    kept: int

    def lock(self, claim_key: str) -> str:
        """Return the key of a lock."""
        return f"{self.base}:redlock:{claim_key}"

    @property
    def index(self) -> str:
        """The key of the index of held locks."""
        return f"{self.base}:redlock-held"


def acquire(
    names: Names,
    claim: Claim,
    proposal: int,
    limit: float,
    node: Sequence[str],
    join: bool = False,
) -> Operation[Grant | Refusal]:
    """Have a quorum grant the claim, and store its token; else undo what was granted.

    With ``join`` a refused claim will wait, see `waiting.py`.

    1. All nodes are asked at the same time. Each that is free draws a token and grants.
    2. A quorum granted, and drew different tokens: the highest is the token, once a quorum has
       stored it.
    3. No quorum: all that granted, or did not answer, are told to free it. When several have split
       the votes, so that none has a quorum, they try again after random delays, and the one that
       leads keeps what it has.
    """
    nodes = len(node)
    until = time.monotonic() + limit
    after, last = 0.0, waiting_node(claim.key)
    attempt = _new_attempt()
    unclean: set[int] = set()  # who may have granted it since the last undoing

    def decided(answers: Answers) -> bool:
        return _tally(answers, _granted).verdict is not Verdict.OPEN

    while True:
        words = [_words(names, claim, proposal, attempt, join)]
        answers = yield Round(script("acquire"), words, limit, decided, after=after, last=last)
        tally = _tally(answers, _granted)
        unclean |= {i for i, answer in enumerate(answers) if not _is_clean(answer)}
        if tally.verdict is Verdict.YES:
            token, told = yield from _agree(names, claim, answers, limit)
            if token is not None:
                return Grant(token, claim.ttl)
            if _tally(told, bool).failed:  # whether the token is safe is not known
                yield from _undo(names, claim, attempt, unclean, limit)
                late = zip(told, answers, strict=True)
                said: Answers = [new if isinstance(new, Exception) else old for new, old in late]
                raise QuorumError(report(said, node, _acquire_vote))
        if tally.verdict is Verdict.DOWN:
            yield from _undo(names, claim, attempt, unclean, limit)
            raise QuorumError(report(answers, node, _acquire_vote))
        refused = _refused(answers)
        rivals = [each[2].decode() for each in refused]
        me = SHARED if claim.shared else digest(claim.owner)
        where = standing(me, tally.yes, rivals, tally.failed, nodes)
        after = random.uniform(*RETRY)  # noqa: S311 - spreads load, hides nothing
        over = where is Standing.BEATEN or time.monotonic() + after >= until
        if over or where is Standing.TRAILING:
            yield from _undo(names, claim, attempt, unclean, limit)
            attempt, unclean = _new_attempt(), set()
        if over:
            left = time_to_quorum([each[0] / 1000 for each in refused], nodes)
            note = refused[0][1].decode("utf-8", "replace") if refused else ""
            return Refusal(left, note, queue=join)


def _agree(
    names: Names, claim: Claim, answers: Answers, limit: float
) -> Operation[tuple[int | None, Answers]]:
    """Return the token of a grant once a quorum has stored it, or None and what was said."""
    needed = quorum(len(answers))
    tokens = {i: each[0] for i, each in enumerate(answers) if _said(each, _granted)}  # type: ignore[index]
    token, behind = agreed_token(tokens, len(answers))
    if not behind:
        return token, []
    stored = len(tokens) - len(behind)

    def enough(answers: Answers) -> bool:
        return stored + sum(_said(each, bool) for each in answers) >= needed

    words = (names.lock(claim.key), claim.owner, token)
    told = yield Round(script("raise"), [words], limit, enough, behind, keys=1)
    return (token if enough(told) else None), told


def _new_attempt() -> str:
    """Return the number of an attempt: of all that is asked until it is undone."""
    return f"{random.getrandbits(64):016x}"


def _undo(
    names: Names, claim: Claim, attempt: str, unclean: Iterable[int], limit: float
) -> Operation[None]:
    """Free the claim on every node that granted it, or that may have."""
    undo = sorted(unclean)
    if undo:
        words = (names.lock(claim.key), names.index, claim.owner, attempt)
        yield Round(
            script("release"), [words], min(limit, UNDO), nodes=undo, insist=True, patient=False
        )


def renew(
    names: Names, claims: Sequence[Claim], limit: float, node: Sequence[str]
) -> Operation[list[bool]]:
    """Start the ttl again on a quorum; put a lock that a quorum has back where it was lost.

    A node that was restarted without its data, or was away for longer than the ttl, has lost it.
    Only by a quorum's yes it is ours for sure, so that no other can have it.
    """
    keys = [names.lock(claim.key) for claim in claims]
    args = [
        word
        for claim in claims
        for word in (claim.owner, _ms(claim.ttl), f"s{claim.note}" if claim.shared else "")
    ]

    def decided(answers: Answers) -> bool:
        return Verdict.OPEN not in _renewed(answers, len(claims))

    answers = yield Round(script("renew"), [(*keys, *args)], limit, decided, keys=len(keys))
    verdicts = _renewed(answers, len(claims))
    for number, verdict in enumerate(verdicts):
        if verdict in (Verdict.DOWN, Verdict.SPLIT):
            raise QuorumError(report(_of(answers, number), node, _renew_vote))
    ours = [verdict is Verdict.YES for verdict in verdicts]
    for number, missing in _missing(answers, ours).items():
        calls = [_words(names, claims[each], missing[each], RESTORED) for each in missing]
        yield Round(script("restore"), calls, min(limit, UNDO), nodes=[number], patient=False)
    return ours


def release(names: Names, claim: Claim, limit: float, node: Sequence[str]) -> Operation[Freed]:
    """Free the claim on all nodes."""

    def decided(answers: Answers) -> bool:
        return _tally(answers, bool).verdict is not Verdict.OPEN

    words = (names.lock(claim.key), names.index, claim.owner, "")
    answers = yield Round(script("release"), [words], limit, decided, last=waiting_node(claim.key))
    verdict = _tally(answers, bool).verdict
    if verdict is Verdict.DOWN:
        raise QuorumError(report(answers, node, _release_vote))
    waited_for = any(isinstance(each, list) and each[0] == WAITED_FOR for each in answers)
    return Freed(verdict is not Verdict.NO, waited_for)


# -- reading answers -------------------------------------------------------------------------------


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _words(
    names: Names, claim: Claim, token: int, attempt: str, join: bool = False
) -> tuple[Any, ...]:
    life = _ms(claim.ttl) + names.kept
    numbers = (life, f"{token:016}", f"{names.kept:013}", int(join))
    texts = (readable(claim.name), claim.note, attempt, "s" if claim.shared else "")
    return (names.lock(claim.key), names.index, claim.owner, *numbers, *texts)


def _granted(answer: Any) -> bool:
    return isinstance(answer, int)  # the token


def _tokens(answer: Answer) -> list[int] | None:
    """Return what a node said of each of the claims; None where it said nothing of them."""
    if not isinstance(answer, list) or isinstance(answer[0], Exception):
        return None
    return [int(word) for word in answer[0].split()]


def _of(answers: Answers, number: int) -> Answers:
    """Return what was said of one of the claims, as if it had been the only one."""
    said = map(_tokens, answers)
    return [
        answer if tokens is None else [tokens[number]]
        for answer, tokens in zip(answers, said, strict=True)
    ]


def _renewed(answers: Answers, claims: int) -> list[Verdict]:
    """Return what the votes on each of so many claims come to."""
    said = [tokens for tokens in map(_tokens, answers) if tokens is not None]
    silent = answers.count(None)
    yes = [0] * claims
    if said:
        yes = [sum(token > 0 for token in row) for row in zip(*said, strict=True)]
    failed = len(answers) - len(said) - silent
    comes_to = {
        each: Tally(len(answers), each, len(said) - each, failed).verdict for each in set(yes)
    }
    return [comes_to[each] for each in yes]


def _said(answer: Answer, is_yes: Callable[[Any], bool]) -> bool:
    good = isinstance(answer, list) and not isinstance(answer[0], Exception)
    return good and is_yes(answer[0])  # type: ignore[index]


def _tally(answers: Answers, is_yes: Callable[[Any], bool]) -> Tally:
    yes = no = failed = 0
    for answer in answers:
        if answer is None:
            continue
        said = answer[0] if isinstance(answer, list) else answer
        if isinstance(said, Exception):
            failed += 1
        elif is_yes(said):
            yes += 1
        else:
            no += 1
    return Tally(len(answers), yes, no, failed)


def _is_clean(answer: Answer) -> bool:
    """Return whether a node has surely nothing of ours: it refused, or was not asked."""
    if isinstance(answer, list):
        return isinstance(answer[0], list)
    return isinstance(answer, NotAskedError)


def _refused(answers: Answers) -> list[Any]:
    """Return what the nodes said that refused."""
    said = [each[0] for each in answers if isinstance(each, list)]
    return [each for each in said if isinstance(each, list)]


def _missing(answers: Answers, ours: Sequence[bool]) -> dict[int, dict[int, int]]:
    """Return the nodes that have lost locks of ours: by claim, the highest token of the others."""
    said = {node: tokens for node, each in enumerate(answers) if (tokens := _tokens(each))}
    missing: dict[int, dict[int, int]] = {}
    for node, tokens in said.items():
        for number, token in enumerate(tokens):
            if token == -1 and ours[number]:
                highest = max(each[number] for each in said.values())
                missing.setdefault(node, {})[number] = highest
    return missing


# -- telling people --------------------------------------------------------------------------------


def each_vote(answers: Answers, node: Sequence[str], tell: Callable[[Any], str]) -> dict[str, str]:
    """Return what each node said, by its address."""
    votes = {}
    for name, answer in zip(node, answers, strict=True):
        said: Any = answer[0] if isinstance(answer, list) else answer
        if said is None:
            votes[name] = "no answer in time"
        elif isinstance(said, NotAskedError):
            votes[name] = f"not asked again: {said}"
        elif isinstance(said, Exception):
            votes[name] = f"{type(said).__name__}: {said}"
        else:
            votes[name] = tell(said)
    return votes


def _acquire_vote(answer: Any) -> str:
    return "granted" if _granted(answer) else f"held by another for {answer[0] / 1000:g} s"


def _renew_vote(answer: Any) -> str:
    return "renewed" if answer > 0 else "held by another" if answer == 0 else "free"


def _release_vote(answer: Any) -> str:
    return "released" if answer else "not held"


def report(answers: Answers, node: Sequence[str], tell: Callable[[Any], str]) -> str:
    """Return what each node said, as a sentence."""
    votes = each_vote(answers, node, tell)
    answered = sum(_tally([each], lambda _: True).yes for each in answers)
    said = "; ".join(f"{name}: {vote}" for name, vote in votes.items())
    return f"{answered} of {len(node)} nodes answered, {quorum(len(node))} are needed: {said}"
