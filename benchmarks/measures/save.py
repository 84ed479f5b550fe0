"""``save()`` of a row that was read, with a version to compare and without."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench, Row
from ..savers import Saver, savers
from .rates import rates

__all__ = ["save"]


def save(bench: Bench) -> list[Row]:
    """Measure how often a second one instance can be changed and saved."""
    if not bench.store.has_tables:
        return []
    return rates(bench, "save", savers(), _ready)


def _ready(saver: Saver) -> Callable[[], None]:
    return saver.open()
