"""The questions of several operations, asked together: transactions in one, keepalives in one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from . import protocol
from .client import Operation, Said
from .protocol import KEEPALIVE, TXN, Question

__all__ = ["ask_all"]


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
