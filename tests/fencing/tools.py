"""Leases of holders who do not know of each other, and statements that are counted or held up."""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connections

from django_distlock import Lease, lock, locks

TOKEN = 1_000


class Rivals(NamedTuple):
    """Two holders of one lock, the first of whom does not know yet that it is the second's."""

    old: Lease
    new: Lease


def rivals(name: str, using: str) -> Rivals:
    """Let one acquire the lock, and another after it was taken from the first."""
    old = somebody(name, using)
    locks[using].force_release(name)
    new = somebody(name, using)
    old.check()  # it would go on
    assert new.fencing_token > old.fencing_token
    return Rivals(old, new)


def somebody(name: str, using: str) -> Lease:
    """Return the lease of a holder who has nothing to do with us."""
    lease = contextvars.Context().run(lock(name, using=using, ttl=60, wait=0).acquire)
    assert lease is not None
    return lease


def made_up(name: str, token: int = TOKEN, owner: str = "me") -> Lease:
    """Return a lease with this token and owner; the dummy backend believes it."""
    lease = somebody(name, "dummy")
    version, alias, told, _, ttl, _, *rest = json.loads(lease.detach())
    return Lease.attach(json.dumps([version, alias, told, owner, ttl, token, *rest]))


@contextmanager
def statements(database: str) -> Iterator[list[str]]:
    """Collect the first words of what this thread sends to a database."""
    sent: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append(sql.split()[0])
        return execute(sql, params, many, context)

    with connections[database].execute_wrapper(note):
        yield sent


@contextmanager
def announced(database: str, told: threading.Event, word: str) -> Iterator[None]:
    """Tell when this thread is about to send a statement that begins with a word."""

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(word):
            told.set()
        return execute(sql, params, many, context)

    with connections[database].execute_wrapper(note):
        yield


@contextmanager
def just_before(database: str, word: str, happens: Callable[[], object]) -> Iterator[None]:
    """Have something happen between the lease's check and the first such statement of ours."""
    pending = [happens]

    def interfere(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if pending and sql.startswith(word):
            pending.pop()()
        return execute(sql, params, many, context)

    with connections[database].execute_wrapper(interfere):
        yield
