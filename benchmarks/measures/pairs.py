"""Acquire + release, uncontended, client and server on one core."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import Adapter
from ..bench import Bench, Row
from .rates import rates

__all__ = ["pairs"]


def pairs(bench: Bench) -> list[Row]:
    """Measure pairs per second of each way to take a lock."""
    return rates(bench, "pairs", bench.adapters, _ready)


def _ready(adapter: Adapter) -> Callable[[], None]:
    adapter.open()
    adapter.warm_up()
    key = f"pairs:{adapter.name}"
    acquire, release = adapter.acquire, adapter.release

    def pair() -> None:
        release(acquire(key))

    return pair
