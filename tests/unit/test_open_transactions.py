"""Which connections are asked for open transactions: those that Django would tell, found faster."""

from __future__ import annotations

import asyncio
import threading

from django.db import connections

from django_distlock import transactions

from .tools import in_thread


def asked_and_told() -> tuple[list[int], list[int]]:
    """Return which connections are asked here, and which Django tells of."""
    asked = [id(each) for each in transactions._of_this_thread()]
    told = [id(each) for each in connections.all(initialized_only=True)]
    return sorted(asked), sorted(told)


def with_connections() -> tuple[list[int], list[int]]:
    for alias in connections:
        connections[alias]  # made, not connected
    asked, told = asked_and_told()
    assert len(told) == len(list(connections))
    return asked, told


async def on_a_loop() -> tuple[list[int], list[int]]:
    return with_connections()


def test_a_new_thread_has_none() -> None:
    assert in_thread(asked_and_told) == ([], [])


def test_a_threads_own_are_asked_and_no_other_threads() -> None:
    with_connections()
    asked, told = in_thread(with_connections)
    assert asked == told


def test_those_of_an_event_loop_are_asked_there_and_not_after_it() -> None:
    def before_and_after() -> None:
        asked, told = asyncio.run(on_a_loop())
        assert asked == told
        assert asked_and_told() == ([], [])
        asked, told = with_connections()
        assert asked == told

    in_thread(before_and_after)


def test_what_is_looked_at_is_still_where_it_was() -> None:
    # Private to Django and asgiref. Were it another thing, `all()` would be asked, more slowly.
    assert type(connections._connections._storage) is threading.local  # type: ignore[attr-defined]
