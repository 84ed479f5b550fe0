"""Releasing what a user has chosen on the page: that very hold, never a newer one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..backends.base import BaseLockBackend
from ..core.text import shown
from ..exceptions import LockBackendError, LockError, LockNotHeldError
from ..handler import locks
from ..history import break_hold
from ..inspection import ask
from ..models import ForcedRelease
from .board import Entry, Row, facts, gather

__all__ = ["Chosen", "choose", "release"]

MOST = 200  # that can be chosen at once


@dataclass(slots=True)
class Chosen:
    """The holds that were chosen and are still held, those that are gone, and what went wrong."""

    entries: list[Entry] = field(default_factory=list)
    details: list[tuple[Row, list[tuple[str, str]]]] = field(default_factory=list)
    gone: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """The holds as the list shows them: of several, not all that is known of each."""
        return [row for row, _facts in self.details]


@dataclass(frozen=True, slots=True)
class _Who:
    """Who releases locks, and why."""

    name: str
    why: str


def choose(keys: Sequence[str], limit: float, *, expired: bool = False) -> Chosen:
    """Find the holds of these keys in their stores, with ``expired`` those that ran out, too."""
    wanted = dict.fromkeys(keys[:MOST])
    board = gather(limit, using={key.partition(":")[2] for key in wanted}, expired=expired)
    found = {entry.key: entry for entry in (*board.expired, *board.entries)}
    down = {store.alias for store in board.stores if store.error}
    missing = [key for key in wanted if key not in found and key.partition(":")[2] not in down]
    entries = [found[key] for key in wanted if key in found]
    return Chosen(
        entries,
        [(board.row(entry), facts(entry, board.at)) for entry in entries],
        len(missing),
        [f"{store.alias}: {store.error}" for store in board.stores if store.error],
    )


def release(request: HttpRequest, chosen: Chosen, limit: float) -> Iterator[tuple[int, str]]:
    """Break the holds, write each down, and yield messages for the user.

    A store that fails, or does not answer within ``limit`` seconds, is not asked to break another.
    """
    # Read here, by a query perhaps, and not on the threads that ask the stores.
    who = _Who(request.user.get_username(), request.POST.get("why", ""))
    by_alias: dict[str, list[Entry]] = {}
    for entry in chosen.entries:
        by_alias.setdefault(entry.alias, []).append(entry)
    for alias, entries in by_alias.items():
        done, error = _break_all(locks[alias], entries, who, limit)
        for entry, outcome in zip(entries, done, strict=False):
            if isinstance(outcome, LockNotHeldError):
                chosen.gone += 1
            elif outcome is not None:
                yield messages.ERROR, str(outcome)
            else:
                yield messages.SUCCESS, _("Released %(name)s in %(alias)s.") % _named(entry)
        if error:
            yield messages.ERROR, error
            unknown, *rest = entries[len(done) :]
            yield (
                messages.ERROR,
                _("Free, or not: %(name)s in %(alias)s. Look at it again.") % _named(unknown),
            )
            for entry in rest:
                yield messages.ERROR, _("Not released: %(name)s in %(alias)s.") % _named(entry)
    if chosen.gone:
        yield messages.WARNING, gone(chosen.gone)
    for problem in chosen.errors:
        yield messages.ERROR, problem
    if not (chosen.entries or chosen.gone or chosen.errors):
        yield messages.WARNING, _("No lock was chosen.")


def _break_all(
    backend: BaseLockBackend, entries: Sequence[Entry], who: _Who, limit: float
) -> tuple[list[LockError | None], str]:
    """Break holds of one store; return how each has gone, and what was wrong with the store.

    Then there are fewer outcomes than holds, and the first one without may be broken yet: whoever
    is late goes on with it, writes it down, and begins no other.
    """
    done: list[LockError | None] = []
    error: str | None = None
    while error is None and len(done) < len(entries):
        # Half of the limit for what is begun: a store that is slow, and answers, is never late.
        until = time.monotonic() + limit / 2

        def some(backend: BaseLockBackend, until: float = until) -> None:
            for entry in entries[len(done) :]:
                done.append(_break(backend, entry, who))
                if time.monotonic() >= until:
                    return

        error = ask({backend.alias: backend}, some, limit)[backend.alias].error
    told = done[:]  # as it is now: it may still grow
    return told, "" if len(told) == len(entries) else error or ""


def _break(backend: BaseLockBackend, entry: Entry, who: _Who) -> LockError | None:
    """Break one hold and write it down; return why it was not, unless the store itself failed."""
    try:
        way = ForcedRelease.Way.PAGE
        break_hold(backend, entry.info, by=who.name, way=way, why=who.why)
    except LockBackendError:
        raise
    except LockError as error:
        return error
    return None


def _named(entry: Entry) -> dict[str, str]:
    return {"name": shown(entry.info.name, 120), "alias": entry.alias}


def gone(number: int) -> str:
    """Say that holds are not there any more."""
    return ngettext(
        "Not released: the hold that you saw has ended. If the lock is held now, it is by a newer "
        "holder.",
        "%(number)s were not released: the holds that you saw have ended. What is held now is held "
        "by newer holders.",
        number,
    ) % {"number": number}
