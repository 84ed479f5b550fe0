"""What Consul is asked, as steps: requests and rests, for both modes. No input or output."""

from __future__ import annotations

import base64
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from ...http import Answer, HttpError, Request
from ..flows import Rest, Standby
from .records import KeyValue, Paths, State, encode, pair_of, state_of

__all__ = ["Api", "ConsulError", "Op", "Step", "Talk", "Txn", "ask", "op"]

T = TypeVar("T")

PAUSE: Final = 0.1  # seconds between two requests while a leader is elected
MOST_OPS: Final = 64
"""What Consul does in one transaction."""

_PASSING = (
    "no cluster leader",
    "leadership lost",
    "not ready to serve consistent",
    "rate limit",
    # Of an agent whose server was stopped: "rpc error" alone is said of every error, too.
    "rpc error getting client",
    "connection refused",
    "connection reset",
    "broken pipe",
    "i/o timeout",
    "rpc error: eof",
    "rpc error making call: eof",
    "stream closed",
    "session shutdown",
    "node is not the leader",
    "no known consul servers",
    "raft is already shutdown",
    "shutdown",
)


class ConsulError(Exception):
    """Consul answered that it cannot, or will not."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}" if said else str(status))
        self.status = status
        self.said = said

    @property
    def passing(self) -> bool:
        """Whether to ask again in a moment: a leader is being elected, or too many ask."""
        if self.status == 429:
            return True
        said = self.said.lower()
        denied = "permission denied" in said or "acl not found" in said
        return self.status >= 500 and not denied and any(word in said for word in _PASSING)


Step: TypeAlias = Request | Rest | Standby
Talk: TypeAlias = Generator[Step, Any, T]


def ask(request: Request, doubts: list[Exception] | None = None) -> Talk[Answer]:
    """Ask, again after an error that passes: hardly anything that we ask does harm when done twice.

    To the list of ``doubts``, where it is given, the errors are added after which it is not known
    whether it was done: then it may be told no by what it did itself.
    """
    if doubts is not None:
        request = replace(request, again=False)
    while True:
        try:
            answer: Answer = yield request
        except HttpError as error:
            if doubts is None or not error.sent:
                raise
            doubts.append(error)
            if len(doubts) > 1 or not (yield Rest(0.0)):
                raise
            request = replace(request, again=True)
            continue
        if answer.status < 500 and answer.status != 429:
            return answer
        failed = ConsulError(answer.status, answer.body.decode("utf-8", "replace").strip())
        if doubts is not None and failed.status != 429:
            doubts.append(failed)
            request = replace(request, again=True)
        if not failed.passing or not (yield Rest(PAUSE)):
            raise failed


def checked(answer: Answer, *, allowed: Sequence[int] = (200,)) -> Answer:
    """Return an answer whose status is one of those that were asked for."""
    if answer.status not in allowed:
        raise ConsulError(answer.status, answer.body.decode("utf-8", "replace").strip())
    return answer


def pairs_of(answer: Answer) -> list[KeyValue]:
    """Return the keys of an answer; none when there are none."""
    if answer.status == 404:
        return []
    return [pair_of(each) for each in checked(answer).json()]


def index_of(answer: Answer) -> int:
    """Return the index of an answer, from which a blocking query goes on."""
    return max(1, int(answer.headers.get("x-consul-index", "1")))


# -- transactions ----------------------------------------------------------------------------------

Op: TypeAlias = str
"""One operation of a transaction, as JSON."""


def op(verb: str, key: str, *, session: str | None = "", index: int = 0, value: bytes = b"") -> Op:
    """Return an operation on a key; the session None is that of a lock that is not held."""
    text = f'{{"KV":{{"Verb":"{verb}","Key":{encode(key)}'
    if session or session is None:
        text += f',"Session":{encode(session or "")}'
    if index:
        text += f',"Index":{index}'
    if value:
        text += f',"Value":"{base64.b64encode(value).decode()}"'
    return text + "}}"


@dataclass(frozen=True, slots=True)
class Txn:
    """What a transaction came to."""

    done: bool
    pairs: Sequence[KeyValue] = ()
    failed: Mapping[int, str] | None = None
    """Why it was not done, by the number of the operation."""

    def says(self, words: str) -> bool:
        """Return whether one of the reasons has these words."""
        return any(words in each for each in (self.failed or {}).values())

    @property
    def lock_delay(self) -> bool:
        """Whether the lock-delay after an unclean loss is not over."""
        return self.says("due to lock delay")

    @property
    def dead_session(self) -> bool:
        """Whether the session that asked is gone."""
        return self.says("invalid session")


@dataclass(frozen=True, slots=True)
class Api:
    """Consul's HTTP API, as far as it is used: in a datacenter, if one is chosen."""

    datacenter: str = ""

    def target(self, path: str, *words: str) -> str:
        """Return where a request goes."""
        if self.datacenter:
            words = (*words, f"dc={quote(self.datacenter)}")
        return f"{path}?{'&'.join(words)}" if words else path

    def key(self, key: str, *words: str) -> str:
        """Return where a request about a key goes."""
        return self.target(f"/v1/kv/{quote(key)}", *words)

    def transact(self, ops: Sequence[Op], doubts: list[Exception] | None = None) -> Talk[Txn]:
        """Carry operations out, all or none."""
        request = Request("PUT", self.target("/v1/txn"), f"[{','.join(ops)}]".encode("ascii"))
        answer = checked((yield from ask(request, doubts)), allowed=(200, 409))
        data = answer.json()
        if answer.status == 200:
            return Txn(True, [pair_of(each["KV"]) for each in data["Results"] or ()])
        return Txn(False, failed={each["OpIndex"]: each["What"] for each in data["Errors"] or ()})

    def delete(self, key: str, index: int) -> Talk[bool]:
        """Delete a key if it is the one that was seen; true also when there is none."""
        request = Request("DELETE", self.key(key, f"cas={index}"))
        answer = checked((yield from ask(request)))
        return answer.body.strip() == b"true"

    def get(self, key: str) -> Talk[list[KeyValue]]:
        """Read one key: none or one."""
        return pairs_of((yield from ask(Request("GET", self.key(key)))))

    def pairs(self, start: str, *, sure: bool = False) -> Talk[tuple[list[KeyValue], int]]:
        """Read all keys that begin so, and the index; ``sure`` asks the leader if it still is."""
        words = ("recurse", "consistent") if sure else ("recurse",)
        answer = yield from ask(Request("GET", self.key(start, *words)))
        return pairs_of(answer), index_of(answer)

    def look(self, paths: Paths, *, sure: bool = False) -> Talk[State]:
        """Read all keys of a name."""
        pairs, index = yield from self.pairs(paths.all, sure=sure)
        return state_of(paths, pairs, index)
