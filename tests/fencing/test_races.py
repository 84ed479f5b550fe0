"""Stale holders whose writes meet those of the next holder in the database."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models import F

from django_distlock import FenceRejectedError, Lease
from tests.backends.tools import LIMIT, SERVERS, STORES, Elsewhere, elsewhere
from tests.fencing.models import Account, Savings
from tests.fencing.tools import TOKEN, announced, made_up

THREADS = 4
ATTEMPTS = THREADS * math.ceil(10_000 / THREADS / len(STORES))
"""On each database, so that they are 10,000 on all that are there."""

LATE: dict[str, Callable[[Savings, str, Lease], object]] = {
    "by its key": lambda row, store, lease: (
        Account.objects.using(store).fenced(lease).filter(pk=row.pk).update(balance=-1)
    ),
    "by a filter": lambda row, store, lease: (
        Account.objects.using(store)
        .fenced(lease)
        .filter(owner=row.owner, parent=row.parent)
        .update(balance=-1)
    ),
    "by a join": lambda row, store, lease: (
        Account.objects.using(store)
        .fenced(lease)
        .filter(parent__balance=0, pk=row.pk)
        .update(balance=-1)
    ),
    "in two tables": lambda row, store, lease: (
        Savings.objects.using(store).fenced(lease).filter(pk=row.pk).update(balance=-1, rate=-1)
    ),
    "by a save": lambda row, store, lease: lease.save(row),
    "by update_or_create": lambda row, store, lease: (
        Savings.objects.using(store).fenced(lease).update_or_create({"balance": -1}, pk=row.pk)
    ),
    "by delete": lambda row, store, lease: (
        Account.objects.using(store).fenced(lease).filter(pk=row.pk).delete()
    ),
}
WORDS = {"by update_or_create": "SELECT"}
"""What meets the lock of the row first, where it is no UPDATE."""


@pytest.mark.parametrize("store", SERVERS, indirect=True)
@pytest.mark.parametrize("way", LATE)
def test_a_write_that_waited_for_the_next_holders_is_judged_by_it(
    store: str, name: str, way: str
) -> None:
    """The statement begins before the next holder commits, and ends after."""
    parent = Account.objects.using(store).create(owner=name)
    row = Savings.objects.using(store).create(owner=name, rate=5, parent=parent)
    row.balance = -1
    sent = threading.Event()

    def late() -> None:
        with announced(store, sent, WORDS.get(way, "UPDATE")):
            LATE[way](row, store, made_up("a"))

    with transaction.atomic(using=store):
        rows = Account.objects.using(store).fenced(made_up("a", TOKEN + 1))
        assert rows.filter(pk=row.pk).update(balance=7) == 1
        stale = Elsewhere(late).start()
        assert sent.wait(LIMIT)
        time.sleep(0.1)  # so that the statement is there, and waits for the row
        assert not stale.done()
    with pytest.raises(FenceRejectedError):
        stale.result()
    found = Savings.objects.using(store).get(pk=row.pk)
    assert (found.balance, found.rate, found.fence) == (7, 5, TOKEN + 1)


@pytest.mark.parametrize("store", [s for s in SERVERS if s == "mariadb"], indirect=True)
@pytest.mark.parametrize("watched", ["OFF", "ON"])
def test_a_transaction_that_sees_old_data_is_told(store: str, name: str, watched: str) -> None:
    """At REPEATABLE READ its SELECTs see what was there at its first one; its UPDATEs what is."""
    row = Account.objects.using(store).create(owner=name)
    alias = f"{store} repeatable read"
    rows = Account.objects.using(alias).filter(owner=name)
    lease = made_up("a")

    def overtake(newer: Lease) -> None:
        Account.objects.using(store).fenced(newer).filter(pk=row.pk).update(balance=1)

    writes: list[Callable[[], object]] = [
        lambda: rows.all().fenced(lease).update(balance=2),
        lambda: rows.all().fenced(lease).filter(pk=row.pk).update(balance=2),
        lambda: lease.save(row, using=alias),
    ]
    for number, write in enumerate(writes, start=1):
        newer = made_up("a", TOKEN + number)
        connections[alias].ensure_connection()
        with connections[alias].cursor() as cursor:
            cursor.execute(f"SET SESSION innodb_snapshot_isolation = {watched}")
        with suppress(OperationalError), transaction.atomic(using=alias):
            before = rows.get().fence
            elsewhere(partial(overtake, newer))
            assert rows.get().fence == before
            # With snapshots watched the database refuses, and the transaction is at its end.
            expected = FenceRejectedError if watched == "OFF" else OperationalError
            with pytest.raises(expected):
                write()
            if watched == "ON":
                raise OperationalError
        assert rows.get().balance == 1
    connections[alias].close()


@pytest.mark.usefixtures("patient_writers")
def test_of_ten_thousand_stale_writes_none_gets_through(store: str, name: str) -> None:
    """While the holder goes on writing, others try with older tokens; each try is a statement."""
    rows = Account.objects.using(store).filter(owner=name)
    row = Account.objects.using(store).create(owner=name)
    holder = made_up("a", TOKEN + 1)
    assert rows.fenced(holder).update(balance=1) == 1

    def attack(lease: Lease) -> int:
        mine = rows.get()
        mine.balance = -1
        refused = 0
        for attempt in range(ATTEMPTS // THREADS):
            write: Callable[[], object] = partial(rows.all().fenced(lease).update, balance=-1)
            if attempt % 10 == 9:
                write = partial(lease.save, mine)
            with pytest.raises(FenceRejectedError) as caught:
                write()
            refused += caught.value.pks == (row.pk,)
        return refused

    stale = [made_up("a", TOKEN - back, owner=f"late {back}") for back in range(THREADS)]
    attacks = [Elsewhere(partial(attack, lease)).start() for lease in stale]
    written = 1
    while not all(each.done() for each in attacks):
        rows.all().fenced(holder).update(balance=F("balance") + 1)
        written += 1
        time.sleep(0.01)
    assert sum(each.result() for each in attacks) == ATTEMPTS
    assert set(rows.values_list("balance", "fence")) == {(written, TOKEN + 1)}
