"""Transactions that read from a snapshot, at each isolation level a user may choose."""

from __future__ import annotations

import threading

import pytest
from django.db import connections, transaction

from django_distlock import StaleVersionError
from django_distlock.versions import retry_on_conflict
from tests.backends.tools import database_alias
from tests.settings import ISOLATED
from tests.versions.models import Item
from tests.versions.tools import STORES, values

# On MariaDB a read locks the row when SERIALIZABLE, so that there is no conflict to meet.
LEVELS = [
    (store, level)
    for store in STORES
    for level in ISOLATED.get(store, ())
    if (store, level) != ("mariadb", "serializable")
]


def elsewhere(store: str) -> None:
    """Write each row on another connection, and commit."""

    def write() -> None:
        for item in Item.objects.using(store):
            item.name = "theirs"
            item.save()
        connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("store", "level"), LEVELS, indirect=["store"], ids=str)
@pytest.mark.parametrize("how", ["save", "delete", "bulk_update"])
def test_who_reads_an_old_snapshot_writes_nothing(store: str, level: str, how: str) -> None:
    Item.objects.using(store).create(name="a")
    alias = f"{store} {level}"
    runs = 0

    @retry_on_conflict(3)
    def write() -> None:
        nonlocal runs
        runs += 1
        mine = Item.objects.using(alias).get()
        if runs == 1:
            elsewhere(store)
        mine.name = "mine"
        if how == "bulk_update":
            Item.objects.using(alias).bulk_update([mine], ["name"])
        else:
            getattr(mine, how)()

    with (
        pytest.raises(StaleVersionError, match=r"^versions.Item pk=") as raised,
        transaction.atomic(using=alias),
    ):
        write()
    assert runs == 1
    [note] = raised.value.__notes__
    assert level in note
    assert "around the transaction" in note
    assert raised.value.using == alias
    assert values(Item, store, "name") == ["theirs"]

    runs = 0
    retry_on_conflict(2)(transaction.atomic(using=alias)(write))()
    connections[alias].close()
    assert runs == 2
    assert values(Item, store, "name") == ([] if how == "delete" else ["mine"])


@pytest.mark.parametrize(("store", "level"), LEVELS, indirect=["store"], ids=str)
def test_a_transaction_on_another_alias_is_not_in_the_way(store: str, level: str) -> None:
    Item.objects.using(store).create(name="a")
    runs = []

    @retry_on_conflict(2)
    def write() -> None:
        mine = Item.objects.using(store).get()
        runs.append(mine)
        if len(runs) == 1:
            elsewhere(store)
        mine.save()

    with transaction.atomic(using=f"{store} {level}"):
        write()
    connections[f"{store} {level}"].close()
    assert len(runs) == 2


@pytest.mark.parametrize("store", [s for s in STORES if s == "mariadb"], indirect=True)
def test_a_snapshot_that_does_not_show_the_conflict(store: str) -> None:
    """MariaDB as it is before 11.6: the row is not found, and still looks as it was read."""
    level = {"OPTIONS": {**connections[store].settings_dict["OPTIONS"]}}
    level["OPTIONS"]["isolation_level"] = "repeatable read"
    with database_alias("snapshot", connections.settings[store] | level):
        mine = Item.objects.using("snapshot").create(name="a")
        others = Item.objects.using("snapshot").bulk_create([Item(name="b"), Item(name="c")])
        with transaction.atomic(using="snapshot"):
            mine.refresh_from_db()
            elsewhere(store)
            for write in (
                mine.save,
                mine.delete,
                lambda: Item.objects.using("snapshot").bulk_update([mine, *others], ["name"]),
            ):
                with pytest.raises(StaleVersionError, match="after this transaction had begun"):
                    write()
    assert values(Item, store, "name") == ["theirs"] * 3
