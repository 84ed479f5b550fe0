"""The version in forms: signed, bound to its row, and a conflict that people can read."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django import forms
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.forms import modelform_factory, modelformset_factory

from django_distlock.versions.forms import SALT
from tests.versions.models import Country, Item, Owner, Place
from tests.versions.tools import refused, values

ItemForm = modelform_factory(Item, fields="__all__")
EVIL = "<script>alert(1)</script>\x1b[2J"


def sent(form: Any, **changes: Any) -> dict[str, Any]:
    """Return what a browser sends of a form."""
    data = {bound.html_name: bound.value() for bound in form}
    return {name: "" if value is None else value for name, value in (data | changes).items()}


@pytest.fixture
def item(store: str) -> Item:
    return Item.objects.using(store).create(name="a", price=1)


def fresh(item: Item) -> Item:
    return Item.objects.using(item._state.db).get(pk=item.pk)


def test_the_version_is_hidden_and_signed(item: Item) -> None:
    item.name = "secret"
    form = ItemForm(instance=item)
    [hidden] = form.hidden_fields()
    assert hidden.name == "version"
    assert signing.loads(hidden.value(), salt=SALT)[:3] == [
        "versions.item",
        str(item.pk),
        item.version,
    ]
    assert 'type="hidden"' in str(hidden)
    assert "secret" not in signing.b64_decode(hidden.value().split(":")[0].encode()).decode()


def test_without_a_conflict_it_is_saved(item: Item) -> None:
    data = sent(ItemForm(instance=item), name="b")
    form = ItemForm(data, instance=fresh(item))
    assert form.is_valid()
    assert form.changed_data == ["name"]
    form.save()
    assert fresh(item).name == "b"
    with refused(item):
        item.save()


def test_a_conflict_is_an_error_that_shows_what_changed(item: Item, store: str) -> None:
    owner = Owner.objects.using(store).create(name=EVIL)
    data = sent(ItemForm(instance=item), price="5")
    theirs = fresh(item)
    theirs.name, theirs.kind, theirs.owner = EVIL, "b", owner
    theirs.save()
    form = ItemForm(data, instance=fresh(item))
    assert not form.is_valid()
    errors = form.non_field_errors()
    text = "\n".join(map(str, errors))
    assert "Another user has changed this item" in text
    assert "Name is now: <script>" in text
    assert "Kind is now: Berry" in text
    assert "Owner is now: <script>" in text
    assert "Price" not in text  # that is the user's own change
    assert "\x1b" not in text
    page = form.as_p()
    assert "<script>" not in page
    assert html.escape("<script>alert(1)</script>") in page
    assert form["price"].value() == "5"
    assert form["name"].value() == "a"
    assert fresh(item).price == 1

    # Sent again, the user has seen it: it overwrites what was shown, and nothing newer.
    again = sent(form)
    Item.objects.using(store).update(name="newer")
    form = ItemForm(again, instance=fresh(item))
    assert not form.is_valid()
    assert "Name is now: newer" in form.non_field_errors()
    assert "Kind" not in "".join(map(str, form.non_field_errors()))
    form = ItemForm(sent(form), instance=fresh(item))
    assert form.is_valid(), form.errors
    form.save()
    assert values(Item, store, "name", "price") == [("a", 5)]


def test_a_conflict_elsewhere_in_the_row_tells_no_values(item: Item, store: str) -> None:
    form_class = modelform_factory(Item, fields=["name", "version"])
    data = sent(form_class(instance=item), name="b")
    Item.objects.using(store).update(price=99)
    form = form_class(data, instance=fresh(item))
    assert not form.is_valid()
    text = "".join(map(str, form.non_field_errors()))
    assert "does not show" in text
    assert "99" not in text
    form = form_class(sent(form), instance=fresh(item))
    form.save()
    assert values(Item, store, "name", "price") == [("b", 99)]


def test_another_error_does_not_let_a_conflict_through(item: Item, store: str) -> None:
    data = sent(ItemForm(instance=item), price="x")
    form = ItemForm(data, instance=fresh(item))
    assert not form.is_valid()
    assert form.non_field_errors() == []
    Item.objects.using(store).update(name="theirs")
    form = ItemForm(sent(form, price="5"), instance=fresh(item))
    assert not form.is_valid()
    assert "Name is now: theirs" in form.non_field_errors()


@pytest.mark.parametrize("kind", ["missing", "empty", "cut", "plain", "changed", "other row",
                                  "other model", "other signature", "a list", "huge"])  # fmt: skip
def test_a_token_that_is_not_ours(item: Item, store: str, kind: str) -> None:
    data = sent(ItemForm(instance=item), name="b")
    token = data["version"]
    other = Item.objects.using(store).create(name="other")
    Item.objects.using(store).filter(pk=other.pk).update(version=item.version)
    other.refresh_from_db()
    place = Place.objects.using(store).create(pk=item.pk, name="p")
    bad = {
        "missing": None,
        "empty": "",
        "cut": token[:-1],
        "plain": str(item.version),
        "changed": "A" + token[1:],
        "other row": sent(ItemForm(instance=other))["version"],
        "other model": sent(modelform_factory(Place, fields="__all__")(instance=place))["version"],
        "other signature": signing.dumps([*signing.loads(token, salt=SALT)], salt="x"),
        "a list": signing.dumps([1, 2], salt=SALT),
        "huge": "x" * 100_000,
    }[kind]
    data["version"] = bad
    if bad is None:
        del data["version"]
    form = ItemForm(data, instance=fresh(item))
    assert not form.is_valid()
    assert "Load the page again" in form.non_field_errors()[0]
    assert form["version"].value() == ""  # sending it again does not help
    assert not ItemForm(sent(form), instance=fresh(item)).is_valid()
    assert fresh(item).name == "a"


def test_a_new_row_needs_no_token(store: str) -> None:
    form = ItemForm()
    assert form["version"].value() == ""
    form = ItemForm(sent(form, name="new"))
    assert form.is_valid(), form.errors
    thing = form.save(commit=False)
    thing.save(using=store)
    assert thing.version > 0


def test_a_conflict_between_judging_and_saving(item: Item, store: str) -> None:
    form = ItemForm(sent(ItemForm(instance=item), name="b"), instance=fresh(item))
    assert form.is_valid()
    Item.objects.using(store).update(name="theirs")
    with refused(form.instance):
        form.save()
    assert fresh(item).name == "theirs"


def test_a_version_by_another_name_and_a_prefix(store: str) -> None:
    form_class = modelform_factory(Country, fields="__all__")
    country = Country.objects.using(store).create(code="de", name="a")
    data = sent(form_class(instance=country, prefix="x"), **{"x-name": "b"})
    Country.objects.using(store).update(name="theirs")
    country.refresh_from_db()
    form = form_class(data, instance=country, prefix="x")
    assert not form.is_valid()
    assert "Name is now: theirs" in form.non_field_errors()


def test_formsets(store: str) -> None:
    for name in "ab":
        Item.objects.using(store).create(name=name)
    rows = Item.objects.using(store).order_by("pk")
    make = modelformset_factory(Item, fields=["name", "price", "version"], extra=1)

    def all_sent(formset: Any) -> dict[str, Any]:
        data = sent(formset.management_form)
        for form in formset:
            data |= sent(form)
        return data

    data = all_sent(make(queryset=rows.all())) | {"form-0-name": "c"}
    rows.filter(name="b").update(price=5)
    formset = make(data, queryset=rows.all())
    assert not formset.is_valid()
    assert formset.forms[0].errors == formset.forms[2].errors == {}
    assert "Price is now: 5" in formset.forms[1].non_field_errors()
    assert not formset.forms[2].has_changed()
    formset = make(all_sent(formset), queryset=rows.all())
    assert formset.is_valid(), formset.errors
    formset.save()
    assert values(Item, store, "name", "price") == [("c", 0), ("b", 0)]


def test_a_form_that_is_no_model_form() -> None:
    field = Item._meta.get_field("version").formfield()
    form = type("Loose", (forms.Form,), {"version": field})()
    with pytest.raises(ImproperlyConfigured, match="no ModelForm"):
        str(form)
