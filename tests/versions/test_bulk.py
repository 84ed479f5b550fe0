"""Writers by queryset are seen; ``bulk_update`` judges each row; fixtures keep the versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core import serializers
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import F

from tests.backends.tools import database_alias
from tests.versions.models import Country, Item, Ticket
from tests.versions.tools import STORES, refused, values


def items(store: str, count: int = 3) -> list[Item]:
    Item.objects.using(store).bulk_create(Item(name=str(n)) for n in range(count))
    return list(Item.objects.using(store).order_by("pk"))


def test_update_raises_the_version(store: str) -> None:
    mine = items(store)
    assert Item.objects.using(store).filter(name="1").update(price=F("price") + 2) == 1
    mine[0].save()
    with refused(mine[1]):
        mine[1].save()
    assert values(Item, store, "price") == [0, 2, 0]
    assert Item.objects.using(store).update(version=5) == 3  # who says so, means it
    assert values(Item, store, "version") == [5, 5, 5]
    country = Country.objects.using(store).create(code="de")
    Country.objects.using(store).update(name="x")
    assert Country.objects.using(store).get().revision == country.revision + 1


def test_bulk_update(store: str) -> None:
    mine = items(store)
    before = [item.version for item in mine]
    for item in mine:
        item.price = item.pk
    assert Item.objects.using(store).bulk_update(mine, ["price"], batch_size=2) == 3
    assert values(Item, store, "price") == [item.pk for item in mine]
    assert [item.version for item in mine] == [version + 1 for version in before]
    assert values(Item, store, "version") == [item.version for item in mine]
    mine[0].save()


@pytest.mark.parametrize("store", [each for each in STORES if each == "postgresql"], indirect=True)
def test_bulk_update_with_parameters_that_the_server_binds(store: str) -> None:
    bound = connections.settings[store] | {"OPTIONS": {"server_side_binding": True}}
    with database_alias("bound", bound):
        mine = items("bound")
        mine[0].price = 7
        assert Item.objects.using("bound").bulk_update(mine, ["price"]) == 3
        assert values(Item, "bound", "price") == [7, 0, 0]


def test_bulk_update_is_all_or_nothing_and_names_the_rows(store: str) -> None:
    mine = items(store, 250)  # more than one statement's worth
    Item.objects.using(store).filter(pk__in=[mine[201].pk, mine[249].pk]).update(name="theirs")
    Item.objects.using(store).filter(pk=mine[230].pk).delete()
    before = values(Item, store, "name", "price", "version")
    for item in mine:
        item.name, item.price = "mine", 1
    with refused(*mine) as raised:
        Item.objects.using(store).bulk_update(mine, ["name", "price"])
    assert raised.value.pks == (mine[201].pk, mine[230].pk, mine[249].pk)
    assert "deleted" in str(raised.value)
    assert values(Item, store, "name", "price", "version") == before
    with transaction.atomic(using=store):
        with refused(*mine):
            Item.objects.using(store).bulk_update(mine, ["name"])
        assert values(Item, store, "name", "price", "version") == before
    good = [item for n, item in enumerate(mine) if n not in (201, 230, 249)]
    assert Item.objects.using(store).bulk_update(good, ["name"]) == 247


def test_bulk_update_writes_only_the_rows_of_its_queryset(store: str) -> None:
    mine = items(store)
    for item in mine:
        item.price = 9
    assert Item.objects.using(store).filter(name="1").bulk_update(mine, ["price"]) == 1
    assert values(Item, store, "price") == [0, 9, 0]
    mine[0].save()


def test_bulk_update_refuses_what_it_cannot_judge(store: str) -> None:
    mine = items(store)
    manager = Item.objects.using(store)
    with pytest.raises(ValueError, match="once"):
        manager.bulk_update([mine[0], mine[0]], ["price"])
    with pytest.raises(ValueError, match="leave it out"):
        manager.bulk_update(mine, ["price", "version"])
    with pytest.raises(ValueError, match="primary key"):
        manager.bulk_update([Item(name="x")], ["price"])
    with pytest.raises(ValueError, match="Field names"):
        manager.bulk_update(mine, [])
    assert manager.bulk_update([], ["price"]) == 0
    assert values(Item, store, "version") == [item.version for item in mine]


def test_bulk_create(store: str) -> None:
    mine = items(store)
    assert all(item.version > 0 for item in mine)
    Country.objects.using(store).create(code="de", name="a")
    stale = Country.objects.using(store).get()
    unique = ["code"] if connections[store].features.supports_update_conflicts_with_target else None
    new = Country(code="de", name="b")
    Country.objects.using(store).bulk_create(
        [new], update_conflicts=True, update_fields=["name"], unique_fields=unique
    )
    with refused(stale):
        stale.save()
    new.name = "c"
    new.save()
    assert values(Country, store, "name") == ["c"]


def test_get_or_create_and_update_or_create(store: str) -> None:
    mine, created = Item.objects.using(store).get_or_create(name="a")
    assert created
    theirs, created = Item.objects.using(store).update_or_create(
        name="a", defaults={"price": 3}, create_defaults={"price": 1}
    )
    assert not created
    assert theirs.version == mine.version + 1
    with refused(mine):
        mine.save()
    theirs.save()


@pytest.fixture
def dumped(store: str, tmp_path: Path) -> Path:
    """A fixture of one item at version 7."""
    Item.objects.using(store).create(pk=1, name="dumped")
    Item.objects.using(store).update(version=7)
    path = tmp_path / "items.json"
    call_command("dumpdata", "versions.item", database=store, output=str(path), verbosity=0)
    return path


def test_fixtures_keep_the_versions(store: str, dumped: Path) -> None:
    assert json.loads(dumped.read_text())[0]["fields"]["version"] == 7
    mine = Item.objects.using(store).get()
    mine.name = "later"
    mine.save()
    call_command("loaddata", str(dumped), database=store, verbosity=0)
    assert values(Item, store, "name", "version") == [("dumped", 7)]
    with refused(mine):
        mine.save()
    Item.objects.using(store).all().delete()
    call_command("loaddata", str(dumped), database=store, verbosity=0)
    [loaded] = Item.objects.using(store).all()
    assert loaded.version == 7
    loaded.save()


@pytest.mark.parametrize("kind", ["json", "xml", "jsonl"])
def test_serializers(store: str, kind: str) -> None:
    ticket = Ticket.objects.using(store).create(text="a")
    [told] = serializers.deserialize(kind, serializers.serialize(kind, [ticket]), using=store)
    told.save(using=store)
    assert values(Ticket, store, "version") == [ticket.version]
    ticket.save()
