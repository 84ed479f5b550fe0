"""Asking etcd: the login, and what is asked once more.

An operation is a generator of questions. What comes of a question that was not answered, or not by
a yes, is decided here, in a flow of requests and pauses.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from ...core.flow import UNREAD, Flow, unread
from ...http import Answer, Ask, Endpoint, Http, HttpError, Request
from ..flows import Rest
from . import protocol
from .errors import EtcdError, error_of, is_error
from .protocol import KEEPALIVE, TXN, Question

__all__ = ["EtcdClient", "Operation", "Said", "ask_all"]

T = TypeVar("T")

Said: TypeAlias = dict[str, Any]
Operation: TypeAlias = Generator[Question, Said, T]

PAUSE: Final = 0.05
"""Seconds before a question is repeated that no server could answer now."""

HURRIED: Final = 0.5
"""Seconds below which an attempt may have failed for want of time alone."""

_PROBE: Final = Request("POST", "/v3/kv/range", b'{"key":"AA==","count_only":true}')
"""A question that every server in touch with a leader answers: that one is asked first then."""


class EtcdClient:
    """Carries operations out."""

    def __init__(
        self, http: Http, endpoints: Sequence[Endpoint], user: str = "", password: str = ""
    ) -> None:
        self.http = http
        self._endpoints = tuple(endpoints)
        self._servers = len(self._endpoints)
        self._login = json.dumps({"name": user, "password": password}).encode() if user else None
        self._token = ""
        self._cluster = ""

    # -- what is sent ------------------------------------------------------------------------------

    def request(self, question: Question, *, wait: float = 0.0) -> Request:
        """Return a question as it is sent."""
        headers = (("Authorization", self._token),) if self._token else ()
        return Request(
            "POST",
            question.path,
            question.body.encode("ascii"),
            headers,
            wait=wait,
            again=question.reads,
        )

    def attempts(self, question: Question, ends: float) -> Flow[Said]:
        """Ask until there is an answer, or the time is up."""
        proven = not self._login
        before: HttpError | None = None
        while True:
            if self._login and not self._token:
                yield from self._log_in(ends)
                proven = True
            limit = _left(ends)
            try:
                answer = yield Ask(self.http, self.request(question), ends)
                if answer.status == 200 and not is_error(answer):
                    said = self._read(answer)
                    if (cluster := _cluster_of(said)) and cluster != self._cluster:
                        yield from self._meet(cluster, ends)
                    return said
                error: Exception = error_of(answer)
            except HttpError as failure:
                # That a last, hurried attempt was not answered tells less than what was wrong.
                error = failure if before is None or limit > HURRIED else before
                before = error
            if isinstance(error, EtcdError):
                if error.is_login_over and not proven:
                    self._token = ""  # it has expired, or the server was started again
                    continue
                if not error.passes:
                    raise error
            # Of an error that passes etcd itself does not know whether it will be done.
            if not isinstance(error, HttpError) or error.sent:
                question.repeated = True
            if time.monotonic() + PAUSE >= ends:
                raise error
            yield Rest(PAUSE, ends)
            if self._servers > 1 and not question.reads:
                # What must not be sent twice unnoticed goes to the first server only: find one
                # that answers.
                yield from self._find(ends)

    def _find(self, ends: float) -> Flow[None]:
        try:
            yield Ask(self.http, _PROBE, ends)
        except HttpError:
            if time.monotonic() >= ends:
                raise

    def _log_in(self, ends: float) -> Flow[None]:
        login = Request("POST", "/v3/auth/authenticate", self._login or b"")
        answer = yield Ask(self.http, login, ends)
        if answer.status != 200:
            raise error_of(answer)
        try:
            self._token = str(answer.json()["token"])
        except UNREAD as error:
            raise EtcdError(unread(error)) from error

    def _read(self, answer: Answer) -> Said:
        """Return what was said; several lines, as of a stream, under "lines"."""
        said: Said
        try:
            if answer.body.startswith(b'{"result"'):
                said = {"lines": [json.loads(line) for line in answer.body.splitlines()]}
            else:
                said = json.loads(answer.body)
            _cluster_of(said)
        except UNREAD as error:
            raise EtcdError(f"this is no answer of etcd's: {answer.body[:200]!r}") from error
        return said

    def _meet(self, cluster: str, ends: float) -> Flow[None]:
        """Note a cluster, unless the servers that answer now are of several.

        Another one than before may be the same, restored from a snapshot: then each of the servers
        is of it. One that does not answer may still be of the cluster before, and know of locks.
        """
        if self._cluster:
            found = {cluster}
            headers = (("Authorization", self._token),) if self._token else ()
            for endpoint in self._endpoints:
                probe, other = replace(_PROBE, headers=headers, only=endpoint), self._cluster
                with suppress(HttpError, EtcdError):
                    answer = yield Ask(self.http, probe, min(ends, time.monotonic() + HURRIED))
                    if answer.status == 200:
                        other = _cluster_of(self._read(answer)) or cluster
                found.add(other)
            if len(found) > 1:
                raise EtcdError(
                    "the servers are of different clusters, which know nothing of each other's "
                    f"locks: {' and '.join(sorted(found))}"
                )
        self._cluster = cluster


def _cluster_of(said: Said) -> str:
    """Return the id of the cluster that has answered; "" if it does not say."""
    first = said["lines"][0]["result"] if "lines" in said else said
    return str(first.get("header", {}).get("cluster_id", ""))


def _left(ends: float) -> float:
    return max(ends - time.monotonic(), 0.001)


def ask_all(
    questions: list[Question], ask_each: Callable[[list[Question]], Operation[list[Any]]]
) -> Operation[list[Any]]:
    """Ask questions in as few requests as can be; return the answers, errors among them.

    By ``ask_each`` those that cannot be asked together: a lease is made by itself.
    """
    answers: list[Any] = [None] * len(questions)
    alike: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        alike[question.path].append(number)
    for path, numbers in alike.items():
        some = [questions[number] for number in numbers]
        given: list[Any]
        if path == TXN:
            given = yield from _transact(some)
        elif path == KEEPALIVE:
            given = yield from _keep_alive(some)
        else:
            given = yield from ask_each(some)
        for number, answer in zip(numbers, given, strict=True):
            answers[number] = answer
    return answers


def _transact(questions: list[Question]) -> Operation[list[Said]]:
    joint = protocol.nested(questions)
    try:
        said = yield joint
    finally:
        for each in questions:
            each.repeated = each.repeated or joint.repeated
    return [
        {**part["response_txn"], "header": said["header"]} for part in said.get("responses", ())
    ]


def _keep_alive(questions: list[Question]) -> Operation[list[Said]]:
    """Ask by one request, whose answer has a line for each lease."""
    joint = Question(KEEPALIVE, "\n".join(each.body for each in questions), reads=True)
    said = yield joint
    lines = said.get("lines", [])
    parts, start = [], 0
    for each in questions:
        end = start + each.body.count("\n") + 1
        parts.append({"lines": lines[start:end]})
        start = end
    return parts
