"""What locks that are over leave in a store: nothing, whatever went wrong meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from django_distlock import locks
from tests.servers import ServerError

__all__ = ["nothing_left"]

LIMIT = 60.0
"""Seconds after which the session or the lease of a killed process is over in all tests."""


@contextmanager
def nothing_left(look: Callable[[], set[str]], alias: str, within: float = LIMIT) -> Iterator[None]:
    """Assert that ``look`` finds nothing ``within`` seconds that was not there before the block.

    What this process itself keeps for an alias it parts with, as at its end.
    """
    before = look()
    yield
    with suppress(KeyError):  # it was not used
        del locks[alias]
    end = time.monotonic() + within
    while left := _found(look) - before:
        assert time.monotonic() < end, f"left in the store: {sorted(left)}"
        time.sleep(0.05)


def _found(look: Callable[[], set[str]]) -> set[str]:
    try:
        return look()
    except ServerError as error:  # a server that the test has just started anew
        return {str(error)}
