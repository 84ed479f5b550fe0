"""Conversations with a Redis, written once for threads and event loops.

A talk is a generator that yields commands to be sent at once and is sent their answers, the errors
of the server's among them. All of a talk goes over one connection.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from ...core.flow import Do, Flow, carried
from ...core.values import Claim, Grant, Refusal

__all__ = [
    "Begin",
    "Command",
    "RedisScript",
    "Talk",
    "carried_out",
    "load",
    "one",
    "packer",
    "replicated",
    "run",
    "run_all",
    "several",
    "source_of",
]

T = TypeVar("T")

Command: TypeAlias = "tuple[Any, ...]"
Talk: TypeAlias = Generator[Sequence[Command], list[Any], T]
Begin: TypeAlias = Callable[[], Talk[T]]


class RedisScript(NamedTuple):
    """A script and the digest by which a server that has seen it knows it."""

    text: str
    sha: str


_INCLUDE = re.compile(r"^-- include (\w+\.lua)\n", re.MULTILINE)


def source_of(package: str, name: str) -> str:
    """Return a script of the ``lua`` folder of a package, with what it includes."""
    folder = files(package).joinpath("lua")
    text = folder.joinpath(f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(lambda found: folder.joinpath(found[1]).read_text("utf-8"), text)


@cache
def load(name: str) -> RedisScript:
    """Return a script of the ``lua`` folder beside this file."""
    text = source_of(__package__, name)
    return RedisScript(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def packer(connection: Any) -> Callable[[Iterable[Command]], bytes]:
    """Return what makes the bytes of commands of bytes, str and int."""
    try:
        from hiredis import pack_command
    except ImportError:
        pack = connection.pack_command
        return lambda commands: b"".join(part for each in commands for part in pack(*each))
    # redis-py asks each word for its type before it calls the same function. It is given no
    # numbers: Python runs handlers of signals while it makes a text of one, and where one raises,
    # hiredis crashes the process.
    return lambda commands: b"".join([pack_command(_texts(each)) for each in commands])


def _texts(command: Command) -> Command:
    return tuple([str(each) if type(each) is int else each for each in command])


def one(command: Command) -> Talk[Any]:
    """Send a command and return its answer, or raise it."""
    (answer,) = yield (command,)
    if isinstance(answer, Exception):
        raise answer
    return answer


def several(commands: Sequence[Command]) -> Talk[list[Any]]:
    """Send commands and return their answers, errors among them."""
    return (yield commands)


def run(
    script: RedisScript, keys: Sequence[bytes], args: Sequence[Any], more: Sequence[Command] = ()
) -> Talk[Any]:
    """Run a script, and the commands after it; return its answer, and with more, all of theirs.

    A server that does not know it by its digest, as it was restarted or is another one since, is
    sent the whole script, and knows it from then on.
    """
    words = (len(keys), *keys, *args)
    answers = yield (("EVALSHA", script.sha, *words), *more)
    if isinstance(answers[0], Exception):
        from redis.exceptions import NoScriptError

        if isinstance(answers[0], NoScriptError):
            answers = yield (("EVAL", script.text, *words), *more)
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers if more else answers[0]


def run_all(
    script: RedisScript, given: Sequence[tuple[Sequence[bytes], Sequence[Any]]]
) -> Talk[Any]:
    """Run a script once for each keys and arguments, all in one write; return the answers."""
    from redis.exceptions import NoScriptError

    words = [(len(keys), *keys, *args) for keys, args in given]
    answers = yield [("EVALSHA", script.sha, *each) for each in words]
    unknown = [number for number, each in enumerate(answers) if isinstance(each, NoScriptError)]
    if unknown:
        told = yield [("EVAL", script.text, *words[number]) for number in unknown]
        for number, answer in zip(unknown, told, strict=True):
            answers[number] = answer
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def carried_out(talk: Talk[T], ask: Callable[..., Any], limit: float) -> Flow[T]:
    """Return a flow that sends a conversation's commands by ``ask``, and returns its result."""
    from redis.exceptions import InvalidResponse

    def carry(commands: Sequence[Command]) -> Flow[Any]:
        return (yield Do(ask, (commands, limit)))

    return carried(talk, carry, InvalidResponse)


class Way(Protocol):
    """A technique, of which `replicated` needs this."""

    def acquire(self, claim: Claim, home: bytes) -> Talk[Any]: ...
    def release(self, claim: Claim) -> Talk[bool]: ...
    def understand(self, claim: Claim, answer: Any) -> Grant | Refusal: ...
    def measured(self, seconds: float) -> None: ...


def replicated(way: Way, claim: Claim, home: bytes, least: int, patience: float) -> Talk[Any]:
    """Attempt once; undo a grant that fewer than ``least`` replicas have when the time is up."""
    from redis.exceptions import RedisError

    began = time.monotonic()
    answer = yield from way.acquire(claim, home)
    way.measured(time.monotonic() - began)
    if not isinstance(way.understand(claim, answer), Grant):
        return answer
    limit = max(1, int(patience * 500))  # ms: the rest is for the answer on its way
    command: Command = ("WAIT", least, limit)
    have = yield from one(command)
    if have < least:
        yield from way.release(claim)
        raise RedisError(f"{have} replicas have the grant, and WAIT_REPLICAS is {least}")
    return answer
