"""``save()`` of rows that somebody else has written meanwhile, and what counts as their version."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import FieldError
from django.db import IntegrityError, connections, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_distlock import LockError, StaleVersionError
from tests.versions.models import Country, Item
from tests.versions.saving import again, item
from tests.versions.tools import refused, sql, values


def test_one_statement_that_names_the_version(store: str) -> None:
    thing = item(store)
    before = thing.version
    thing.name = "b"
    with CaptureQueriesContext(connections[store]) as asked:
        thing.save()
    assert len(asked) == 1
    assert str(before) in asked[0]["sql"].split("WHERE")[1]
    assert thing.version == before + 1 == again(thing).version
    thing.save()
    assert again(thing).version == before + 2


def test_the_second_of_two_writers_is_refused(store: str) -> None:
    mine, theirs = item(store), None
    theirs = again(mine)
    theirs.name = "theirs"
    theirs.save()
    mine.name = "mine"
    mine.changed = datetime(2020, 1, 1, tzinfo=UTC)
    with refused(mine) as raised:
        mine.save()
    assert values(Item, store, "name") == ["theirs"]
    error = raised.value
    assert isinstance(error, LockError)
    assert (error.model, error.pks, error.using) == ("versions.Item", (mine.pk,), store)
    for said in ("versions.Item", repr(mine.pk), str(mine.version), str(theirs.version), "refresh"):
        assert said in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with refused(mine):
        mine.save()
    mine.refresh_from_db()
    mine.name = "mine"
    mine.save()
    assert values(Item, store, "name") == ["mine"]


def test_an_instance_of_a_transaction_that_was_rolled_back_is_told_so(store: str) -> None:
    mine = item(store)
    with transaction.atomic(using=store):
        mine.save()
        transaction.set_rollback(True, using=store)
    with refused(mine) as raised:
        mine.save()
    assert "rolled back" in str(raised.value)


def test_an_insert_that_fails_leaves_the_instance_as_it_was(store: str) -> None:
    there = item(store)
    mine = Item(pk=there.pk, name="mine")
    before = mine.version
    with pytest.raises(IntegrityError), transaction.atomic(using=store):
        mine.save(using=store, force_insert=True)
    assert mine.version == before


def test_a_deleted_row_is_not_raised_from_the_dead(store: str) -> None:
    mine = item(store)
    Item.objects.using(store).all().delete()
    options: dict[str, Any]
    for options in ({}, {"force_update": True}, {"update_fields": ["name"]}):
        with refused(mine) as raised:
            mine.save(**options)
        assert "deleted" in str(raised.value)
    assert values(Item, store, "name") == []


def test_a_row_made_again_under_the_same_key_is_another_one(store: str) -> None:
    mine = Country.objects.using(store).create(code="de", name="mine")
    Country.objects.using(store).get().delete()
    Country.objects.using(store).create(code="de", name="theirs")
    with refused(mine):
        mine.save()
    with refused(mine):
        mine.delete()
    assert values(Country, store, "name") == ["theirs"]


def test_who_has_not_read_a_row_does_not_overwrite_it(store: str) -> None:
    Country.objects.using(store).create(code="de", name="first")
    sql(store, "UPDATE versions_country SET revision = 0")  # as if there before the column was
    second = Country(code="de", name="second")
    with pytest.raises(IntegrityError), transaction.atomic(using=store):
        second.save(using=store)
    assert second._state.adding
    assert values(Country, store, "name") == ["first"]


def test_a_key_that_was_changed_is_not_another_rows_key(store: str) -> None:
    one = Country.objects.using(store).create(code="de", name="one")
    Country.objects.using(store).create(code="fr", name="two")
    one.code = "fr"
    with refused(one):
        one.save()
    assert values(Country, store, "name") == ["one", "two"]


def test_update_fields(store: str) -> None:
    mine, theirs = item(store), None
    theirs = again(mine)
    mine.name, mine.price = "b", 7
    mine.save(update_fields=["price"])
    assert values(Item, store, "name", "price", "version") == [("a", 7, mine.version)]
    theirs.name = "c"
    with refused(theirs):
        theirs.save(update_fields=["name"])
    theirs.save(update_fields=[])  # nothing, as Django does
    before = mine.version
    mine.save(update_fields=["version"])
    assert mine.version == before + 1 == again(mine).version
    mine.save(update_fields=["owner_id"])
    with pytest.raises(ValueError, match="do not exist"):
        mine.save(update_fields=["nothing"])


def test_deferred_fields(store: str) -> None:
    item(store)
    mine = Item.objects.using(store).only("name", "version").get()
    theirs = again(mine)
    theirs.price = 5
    theirs.save()
    mine.name = "b"
    with refused(mine):
        mine.save()
    mine = Item.objects.using(store).defer("price").get()
    mine.name = "c"
    mine.save()
    assert values(Item, store, "name", "price") == [("c", 5)]


def test_a_version_that_was_not_loaded_is_not_loaded_later(store: str) -> None:
    item(store)
    mine = Item.objects.using(store).only("name").get()
    for use in (lambda: mine.version, mine.save, mine.delete):
        with pytest.raises(FieldError, match=r"only\(\)"):
            use()
    mine.refresh_from_db(fields=["name", "version"])
    mine.save()
    partly = again(mine)
    mine.name = "b"
    mine.save()
    partly.refresh_from_db(fields=["name"])
    with refused(partly):
        partly.save()


@pytest.mark.parametrize("version", [None, "x", F("version"), 1.5])
def test_something_that_is_no_version(store: str, version: Any) -> None:
    mine = item(store)
    mine.version = version
    for write in (mine.save, mine.delete):
        with pytest.raises(StaleVersionError, match="has no version"):
            write()
    with pytest.raises(StaleVersionError, match="has no version"):
        Item.objects.using(store).bulk_update([mine], ["name"])
    assert values(Item, store, "name") == ["a"]


@pytest.mark.parametrize("change", ["version + 1", "version - 1", "-5", "0", "9223372036854775807"])
def test_a_version_changed_by_sql(store: str, change: str) -> None:
    mine = item(store)
    sql(store, f"UPDATE versions_item SET version = {change}")
    with refused(mine):
        mine.save()
    with refused(mine):
        mine.delete()
    if not change.startswith("9"):
        mine.refresh_from_db()
        mine.save()
