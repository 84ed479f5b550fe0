"""Releasing what somebody has chosen on the page: that very hold, never a newer one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..exceptions import LockError, LockNotHeldError
from ..handler import locks
from ..history import break_hold
from ..models import ForcedRelease, HeldLock
from ..text import shown
from .board import Entry, facts, gather

__all__ = ["Chosen", "choose", "release"]

MOST = 200  # that can be chosen at once


@dataclass(slots=True)
class Chosen:
    """The holds that were chosen and still stand, those that are gone, and what went wrong."""

    entries: list[Entry] = field(default_factory=list)
    details: list[tuple[Entry, list[tuple[str, str]]]] = field(default_factory=list)
    gone: int = 0
    errors: list[str] = field(default_factory=list)


def choose(keys: Sequence[str], limit: float, *, lapsed: bool = False) -> Chosen:
    """Find the holds of these keys in their stores, with ``lapsed`` expired ones, too."""
    wanted = dict.fromkeys(keys[:MOST])
    board = gather(limit, using={key.partition(":")[2] for key in wanted}, lapsed=lapsed)
    found = {entry.key: entry for entry in (*board.lapsed, *board.entries)}
    down = {store.alias for store in board.stores if store.error}
    missing = [key for key in wanted if key not in found and key.partition(":")[2] not in down]
    entries = [found[key] for key in wanted if key in found]
    return Chosen(
        entries,
        [(entry, facts(entry, board.at)) for entry in entries],
        len(missing),
        [f"{store.alias}: {store.error}" for store in board.stores if store.error],
    )


def release(request: HttpRequest, chosen: Chosen) -> Iterator[tuple[int, str]]:
    """Break the holds, write each down, and yield messages for the user."""
    by = request.user.get_username()
    broken = 0
    for entry in chosen.entries:
        name = shown(entry.info.name, 120)
        try:
            row = break_hold(locks[entry.alias], entry.info, by=by, way=ForcedRelease.Way.PAGE)
        except LockNotHeldError:
            chosen.gone += 1
        except LockError as error:
            yield messages.ERROR, str(error)
        else:
            broken += 1
            _log(request, entry, row)
            yield (
                messages.SUCCESS,
                _("Released %(name)s in %(alias)s.")
                % {
                    "name": name,
                    "alias": entry.alias,
                },
            )
    if chosen.gone:
        yield messages.WARNING, gone(chosen.gone)
    for problem in chosen.errors:
        yield messages.ERROR, problem
    if not (broken or chosen.gone or chosen.errors):
        yield messages.WARNING, _("No lock was chosen.")


def gone(number: int) -> str:
    """Say that holds are not there any more."""
    return ngettext(
        "Not released: the hold that you saw has ended. If the lock is held now, it is by a newer "
        "holder.",
        "%(number)s were not released: the holds that you saw have ended. What is held now is held "
        "by newer holders.",
        number,
    ) % {"number": number}


def _log(request: HttpRequest, entry: Entry, row: ForcedRelease | None) -> None:
    """Write it into the admin's log, beside the history, to which its link leads."""
    LogEntry.objects.create(
        user_id=str(request.user.pk),
        content_type=ContentType.objects.get_for_model(
            HeldLock if row is None else ForcedRelease, for_concrete_model=False
        ),
        object_id=None if row is None else str(row.pk),
        object_repr=shown(entry.info.name),
        action_flag=CHANGE,
        change_message=shown(
            f"Released in {entry.alias}; held by {entry.info.holder}, "
            f"token {entry.info.fencing_token}",
            500,
        ),
    )
