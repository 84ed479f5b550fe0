"""``save()`` of all kinds of rows, values and keys goes on as Django does it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.signals import post_save, pre_save

from tests.versions.models import Country, Fruit, Item, Line, Owner, Sum, Ticket
from tests.versions.saving import again, item
from tests.versions.tools import picture, refused, values


def test_expressions_and_computed_columns(store: str) -> None:
    thing = Sum.objects.using(store).create(one=1)
    thing.one = F("one") + 5
    thing.save()
    assert (thing.one, thing.total) == (6, 6)
    thing.two = 3
    thing.save()  # not once more
    assert (thing.one, thing.total) == (6, 9)
    thing.two = 4
    thing.save(update_fields=["two"])
    assert thing.total == 10
    theirs = again(thing)
    theirs.save()
    thing.one = F("one") + 1
    with refused(thing):
        thing.save()
    assert values(Sum, store, "one") == [6]


def test_keys_of_other_kinds(store: str) -> None:
    ticket = Ticket(text="a")
    ticket.save(using=store)
    line = Line.objects.using(store).create(order=1, number=2, text="a")
    assert len(values(Line, store, "text")) == 1
    for mine in (ticket, line):
        theirs = again(mine)
        theirs.text = "b"
        theirs.save()
        with refused(mine):
            mine.save()
        with refused(mine):
            mine.delete()
        theirs.delete()
    assert values(Ticket, store, "text") == values(Line, store, "text") == []


def test_a_proxy_is_the_same_row(store: str) -> None:
    mine = item(store)
    fruit = Fruit.objects.using(store).get()
    fruit.save()
    with refused(mine):
        mine.save()
    mine.refresh_from_db()
    mine.save()
    with refused(fruit):
        fruit.delete()


def test_signals_are_djangos(store: str) -> None:
    told: list[tuple[Any, ...]] = []

    def before(sender: Any, instance: Item, **told_of: Any) -> None:
        told.append(("pre", sender, told_of["update_fields"], told_of["using"], told_of["raw"]))
        instance.price = 5  # receivers change instances

    def after(sender: Any, created: bool, instance: Item, **told_of: Any) -> None:
        told.append(("post", sender, told_of["update_fields"], created, instance.version))

    fruit = Fruit.objects.using(store).create(name="a")
    stale = again(fruit)
    version = fruit.version
    pre_save.connect(before, sender=Fruit)
    post_save.connect(after, sender=Fruit)
    try:
        fruit.save(update_fields={"price"})
        with refused(stale):
            stale.save()
    finally:
        pre_save.disconnect(before, sender=Fruit)
        post_save.disconnect(after, sender=Fruit)
    assert told == [
        ("pre", Fruit, frozenset({"price"}), store, False),
        ("post", Fruit, frozenset({"price"}), False, version + 1),
        ("pre", Fruit, None, store, False),
    ]
    assert values(Item, store, "price") == [5]


def test_a_receiver_that_fails_after_the_write_does_not_hide_it(store: str) -> None:
    thing = item(store)

    def fail(**told: Any) -> None:
        raise RuntimeError("after")

    post_save.connect(fail, sender=Item)
    try:
        with pytest.raises(RuntimeError, match="after"):
            thing.save()
    finally:
        post_save.disconnect(fail, sender=Item)
    assert again(thing).version == thing.version
    thing.save()


def test_an_error_of_the_database_leaves_the_instance_as_it_was(store: str) -> None:
    thing = item(store)
    thing.name = None  # type: ignore[assignment]
    before = picture(thing)
    with pytest.raises(IntegrityError), transaction.atomic(using=store):
        thing.save()
    assert picture(thing) == before
    thing.name = "b"
    thing.save()


def test_a_conflict_does_not_spoil_the_transaction(store: str) -> None:
    mine = item(store)
    again(mine).save()
    with transaction.atomic(using=store):
        with refused(mine):
            mine.save()
        with refused(mine):
            mine.delete()
        with refused(mine):
            Item.objects.using(store).bulk_update([mine], ["name"])
        Owner.objects.using(store).create(name="still there")
    assert values(Owner, store, "name") == ["still there"]


def test_copies_are_new_rows_and_pickles_the_same(store: str) -> None:
    thing = item(store)
    for twin in (pickle.loads(pickle.dumps(thing)), copy.copy(thing), copy.deepcopy(thing)):
        assert twin.version == thing.version
    twin.save()
    with refused(thing):
        thing.save()
    for adding in (True, False):
        other = again(twin)
        other.pk, other._state.adding = None, adding
        other.save()
        assert other.pk != twin.pk
        other.save()
    assert len(values(Item, store, "pk")) == 3


def test_another_database_is_written_by_name(store: str) -> None:
    thing = item(store)
    loose = Item(pk=thing.pk, version=thing.version, name="given by hand")
    loose.save(using=store, force_update=True)
    assert values(Item, store, "name") == ["given by hand"]
    with refused(thing):
        thing.save()
    # Forced, with a version that the row does not have: what was not read is not overwritten.
    blind = Item(pk=thing.pk, name="blind")
    with refused(blind):
        blind.save(using=store, force_update=True)
    with pytest.raises(ValueError, match="Cannot force"):
        blind.save(using=store, force_update=True, force_insert=True)
    with pytest.raises(ValueError, match="no primary key"):
        Item(name="x").save(using=store, force_update=True)


def test_a_key_as_text(store: str) -> None:
    mine = item(store)
    theirs = again(mine)
    mine.pk = str(mine.pk)
    mine.save()
    with refused(theirs):
        theirs.save()
    Item.objects.using(store).update(price=1)
    with refused(mine) as raised:
        mine.save()
    assert f"the version is now {mine.version + 1}" in str(raised.value)


def test_names_that_are_hostile(store: str) -> None:
    mine = Country.objects.using(store).create(code="\n\x1b", name="x")
    Country.objects.using(store).update(name="y")
    with refused(mine) as raised:
        mine.save()
    assert str(raised.value).isprintable()
