"""Stale writers by the thousand, and every order of two writers' steps."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_distlock import StaleVersionError
from django_distlock.versions import retry_on_conflict
from tests.backends.tools import STORES
from tests.versions.models import Country, Item
from tests.versions.tools import values

THREADS = 4
STALE = 10
ROUNDS = math.ceil(10_000 / THREADS / STALE / len(STORES))
"""On each database, so that they are 10,000 on all that are there."""


@pytest.mark.usefixtures("patient_writers")
def test_ten_thousand_stale_writers(store: str) -> None:
    """None gets through: each thread writes its row, and then what it had read before that."""

    def work(number: int) -> tuple[int, int]:
        refused = through = 0
        mine = Item.objects.using(store).create(name="fresh")
        for _ in range(ROUNDS):
            stale = [Item.objects.using(store).get(pk=mine.pk)]
            stale[0].name = "stale"
            mine.save()
            for attempt in range(STALE):
                try:
                    if attempt % 5 == 4:
                        Item.objects.using(store).bulk_update(stale, ["name"])
                    elif attempt % 5 == 3:
                        stale[0].delete()
                    else:
                        stale[0].save()
                    through += 1
                except StaleVersionError:
                    refused += 1
        connections.close_all()
        return refused, through

    with ThreadPoolExecutor(THREADS) as pool:
        told = list(pool.map(work, range(THREADS)))
    assert told == [(ROUNDS * STALE, 0)] * THREADS
    assert values(Item, store, "name") == ["fresh"] * THREADS


@pytest.mark.usefixtures("patient_writers")
def test_no_update_is_lost_by_threads_that_add_up(store: str) -> None:
    item = Item.objects.using(store).create(name="a")
    begin = threading.Barrier(THREADS)
    conflicts = []

    def work(number: int) -> None:
        @retry_on_conflict(1000, longest=0.01)
        def add() -> None:
            mine = Item.objects.using(store).get(pk=item.pk)
            mine.price += 1
            try:
                mine.save()
            except StaleVersionError:
                conflicts.append(1)
                raise

        begin.wait()
        for _ in range(25):
            add()
        connections.close_all()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert values(Item, store, "price") == [25 * THREADS]


STEPS = st.sampled_from(["read", "save", "fields", "delete", "bulk", "update", "create", "refresh"])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=2, max_size=14))
def test_any_order_of_two_writers_steps(store: str, plan: list[tuple[int, str]]) -> None:
    """Compare with a model: a write passes if, and only if, the row is what its writer knows."""
    rows = Country.objects.using(store)
    rows.all().delete()
    now: int | None = None  # which writing the row is from; None while there is none
    count = 0
    known: list[int | None] = [None, None]
    copies: list[Any] = [None, None]
    for who, step in plan:
        mine, count = copies[who], count + 1
        if step == "create":
            if now is None:
                copies[who] = rows.create(code="de", name=str(count))
                now = known[who] = count
        elif step == "update":
            if rows.update(name=str(count)):
                now = count
        elif step == "read":
            copies[who], known[who] = rows.first(), now
        elif mine is None or mine.pk is None:
            continue
        elif step == "refresh":
            if now is not None:
                mine.refresh_from_db()
                known[who] = now
        else:
            mine.name = str(count)
            write = {
                "save": mine.save,
                "fields": lambda mine=mine: mine.save(update_fields=["name"]),
                "bulk": lambda mine=mine: rows.bulk_update([mine], ["name"]),
                "delete": mine.delete,
            }[step]
            expected = now is not None and known[who] == now
            try:
                write()
                passed = True
            except StaleVersionError:
                passed = False
            assert passed == expected, (who, step)
            if passed:
                now = known[who] = None if step == "delete" else count
        assert values(Country, store, "name") == ([] if now is None else [str(now)])
