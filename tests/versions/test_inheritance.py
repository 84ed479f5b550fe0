"""Models with parents: the table that has the version decides for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.models.signals import pre_save
from django.test.utils import CaptureQueriesContext

from tests.versions.models import Bar, Cafe, Gadget, Place, Thing
from tests.versions.tools import refused, values


@pytest.mark.parametrize("model", [Cafe, Bar, Gadget])
def test_both_tables_or_none(store: str, model: Any) -> None:
    mine = model.objects.using(store).create(name="a")
    first = mine.version
    theirs = model.objects.using(store).get()
    theirs.name = "theirs"
    theirs.save()
    assert theirs.version == first + 1
    for options in ({}, {"update_fields": ["name"]}, {"force_update": True}):
        with refused(mine):
            mine.save(**options)
    with refused(mine):
        mine.delete()
    theirs.refresh_from_db()
    assert (theirs.name, theirs.version) == ("theirs", first + 1)
    theirs.delete()
    assert model.objects.using(store).count() == 0


def test_a_field_of_one_table_raises_the_version_in_the_other(store: str) -> None:
    mine = Cafe.objects.using(store).create(name="a")
    place = Place.objects.using(store).get()
    mine.stars = 2
    mine.save(update_fields=["stars"])
    with refused(place):
        place.save()
    place.refresh_from_db()
    assert place.version == mine.version
    place.save()
    with refused(mine):
        mine.save()


def test_update_of_either_table_raises_the_version(store: str) -> None:
    Cafe.objects.using(store).create(name="a")
    for change in ({"stars": 1}, {"name": "b"}, {"stars": 2, "name": "c"}):
        mine = Cafe.objects.using(store).get()
        assert Cafe.objects.using(store).update(**change) == 1
        assert values(Place, store, "version") == [mine.version + 1]
        with refused(mine):
            mine.save()
    assert values(Cafe, store, "stars", "name") == [(2, "c")]


def test_bulk_update_of_a_child(store: str) -> None:
    for name in "ab":
        Cafe.objects.using(store).create(name=name)
    mine = list(Cafe.objects.using(store).order_by("pk"))
    for cafe in mine:
        cafe.stars, cafe.name = 3, "c"
    assert Cafe.objects.using(store).bulk_update(mine, ["stars", "name"]) == 2
    assert values(Cafe, store, "stars", "name") == [(3, "c"), (3, "c")]
    assert values(Place, store, "version") == [cafe.version for cafe in mine]
    Place.objects.using(store).filter(pk=mine[1].pk).update(name="theirs")
    with refused(*mine) as raised:
        Cafe.objects.using(store).bulk_update(mine, ["stars"])
    assert raised.value.pks == (mine[1].pk,)


def test_a_child_for_a_parent_that_is_there(store: str) -> None:
    place = Place.objects.using(store).create(name="a")
    blind = Cafe(place_ptr_id=place.pk, name="blind")
    with refused(blind):
        blind.save(using=store)
    with refused(blind):
        blind.save(using=store, force_insert=True)
    cafe = Cafe(place_ptr_id=place.pk, name="b", version=place.version)
    cafe.save(using=store)
    assert values(Cafe, store, "name", "version") == [("b", place.version + 1)]
    with refused(place):
        place.save()
    cafe.save()


def test_a_child_and_its_parent_with_a_key_given(store: str) -> None:
    cafe = Cafe(pk=77, name="a")
    cafe.save(using=store)
    assert values(Place, store, "pk", "version") == [(77, cafe.version)]
    assert cafe.version > 0
    with pytest.raises(IntegrityError), transaction.atomic(using=store):
        Cafe(pk=77, name="b").save(using=store, force_insert=(Place,))
    assert values(Place, store, "name") == ["a"]


def test_a_parent_that_somebody_else_is_faster_to_make(store: str) -> None:
    def faster(**told: Any) -> None:
        Place.objects.using(store).bulk_create([Place(pk=77, name="theirs")])

    mine = Cafe(pk=77, name="mine")
    pre_save.connect(faster, sender=Cafe)
    try:
        with pytest.raises(IntegrityError), transaction.atomic(using=store):
            mine.save(using=store)
    finally:
        pre_save.disconnect(faster, sender=Cafe)
    assert (mine.pk, mine.version) == (77, 0)


def test_a_child_of_an_unversioned_parent_that_is_there(store: str) -> None:
    thing = Thing._base_manager.using(store).create(name="a")
    gadget = Gadget(thing_ptr_id=thing.pk, name="b")
    gadget.save(using=store)
    gadget.save()
    with pytest.raises(IntegrityError), transaction.atomic(using=store):
        Gadget(thing_ptr_id=thing.pk, name="c").save(using=store)
    assert values(Gadget, store, "name") == ["b"]


def test_an_error_in_the_childs_table_undoes_the_parents(store: str) -> None:
    cafe = Cafe.objects.using(store).create(name="a")
    version = cafe.version
    cafe.name, cafe.stars = "b", None  # type: ignore[assignment]
    with pytest.raises(IntegrityError), transaction.atomic(using=store):
        cafe.save()
    assert cafe.version == version
    assert values(Cafe, store, "name", "version") == [("a", version)]
    cafe.stars = 1
    cafe.save()


def test_the_claim_is_the_only_statement_more(store: str) -> None:
    cafe = Cafe.objects.using(store).create(name="a")
    with CaptureQueriesContext(connections[store]) as asked:
        cafe.save()
    assert [q["sql"].split()[0] for q in asked if "versions_" in q["sql"]] == ["UPDATE"] * 3
