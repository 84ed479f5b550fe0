"""``delete()`` of rows that somebody else has written meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Model, ProtectedError
from django.db.models.signals import pre_delete
from django.test import override_settings

from tests.versions.models import Cafe, Item, Owner, Place
from tests.versions.tools import refused, values


def test_only_who_has_read_what_it_is_deletes_it(store: str) -> None:
    mine = Item.objects.using(store).create(name="a")
    theirs = Item.objects.using(store).get()
    theirs.save()
    with refused(mine) as raised:
        mine.delete()
    assert str(theirs.version) in str(raised.value)
    assert theirs.delete() == (1, {"versions.Item": 1})
    assert values(Item, store, "pk") == []
    with refused(mine) as raised:
        mine.delete()
    assert "deleted" in str(raised.value)
    with pytest.raises(ValueError, match="can't be deleted"):
        Item(name="never saved").delete()


def test_a_queryset_deletes_what_is_there(store: str) -> None:
    Item.objects.using(store).create(name="a")
    assert Item.objects.using(store).delete()[0] == 1


def test_a_deletion_that_is_refused_spoils_neither_row_nor_transaction(store: str) -> None:
    def refuse(**told: Any) -> None:
        raise ProtectedError("protected", set())

    thing = Item.objects.using(store).create(name="a")
    pre_delete.connect(refuse, sender=Item)
    try:
        with transaction.atomic(using=store):
            with pytest.raises(ProtectedError):
                thing.delete()
            thing.save()
    finally:
        pre_delete.disconnect(refuse, sender=Item)
    thing.delete()


def test_a_router_is_asked(store: str) -> None:
    class Router:
        def db_for_write(self, model: type[Model], **hints: Any) -> str:
            return store

    thing = Item(name="a")
    with override_settings(DATABASE_ROUTERS=[Router()]):
        thing.save()
        assert thing._state.db == store
        mine = Item.objects.using(store).get()
        thing.save()
        with refused(mine):
            mine.save()
        thing.delete()
    assert values(Item, store, "pk") == []


def test_keep_parents(store: str) -> None:
    cafe = Cafe.objects.using(store).create(name="a")
    cafe.delete(keep_parents=True)
    [place] = Place.objects.using(store).all()
    assert place.version == cafe.version
    place.save()


def test_djangos_writes_through_relations_raise_the_version(store: str) -> None:
    owner = Owner.objects.using(store).create(name="o")
    other = Owner.objects.using(store).create(name="p")
    mine = Item.objects.using(store).create(name="a", owner=owner)
    writes: tuple[Callable[[], Any], ...] = (
        lambda: other.items.add(mine),
        lambda: other.items.remove(Item.objects.using(store).get()),
        lambda: owner.items.add(mine),
        lambda: owner.items.update(name="b"),
        lambda: owner.delete(),  # SET_NULL
    )
    for write in writes:
        read = Item.objects.using(store).get()
        write()
        with refused(read):
            read.save()
    assert values(Item, store, "owner", "name") == [(None, "b")]


def test_async_twins(store: str) -> None:
    async def both() -> None:
        mine = await Item.objects.using(store).acreate(name="a")
        theirs = await Item.objects.using(store).aget()
        await theirs.asave()
        with refused(mine):
            await mine.asave()
        with refused(mine):
            await mine.adelete()
        with refused(mine):
            await Item.objects.using(store).abulk_update([mine], ["name"])
        await mine.arefresh_from_db()
        await Item.objects.using(store).aupdate(name="b")
        with refused(mine):
            await mine.asave()
        await mine.arefresh_from_db()
        await mine.adelete()

    asyncio.run(both())
    assert values(Item, store, "pk") == []
