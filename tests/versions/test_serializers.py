"""Versioned rows in serializers of Django REST framework: a stale write is a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import include, path
from rest_framework.exceptions import APIException
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import ModelViewSet

from django_distlock.contrib.rest_framework import VersionedModelSerializer
from tests.versions.models import Country, Item
from tests.views.site import site

JSON = {"Accept": "application/json"}


class ItemSerializer(VersionedModelSerializer):
    class Meta:
        model = Item
        fields = ("id", "name", "price", "version")


@pytest.fixture
def item(store: str) -> Item:
    return Item.objects.using(store).create(name="old", price=5)


@pytest.fixture
def client(store: str) -> Iterator[Client]:
    class Items(ModelViewSet):
        queryset = Item.objects.using(store).order_by("pk")
        serializer_class = ItemSerializer

    router = SimpleRouter()
    router.register("items", Items)
    with site(path("", include(router.urls))) as client:
        yield client


def send(client: Client, verb: str, item: Item, data: dict[str, Any]) -> Any:
    ask = getattr(client, verb)
    return ask(f"/items/{item.pk}/", data, content_type="application/json", headers=JSON)


@pytest.mark.parametrize("verb", ["put", "patch"])
def test_a_stale_write_is_a_conflict(client: Client, item: Item, verb: str) -> None:
    read = client.get(f"/items/{item.pk}/").json()
    assert read["version"] == item.version
    done = send(client, verb, item, {**read, "price": 6})
    assert (done.status_code, done.json()["price"]) == (200, 6)
    assert done.json()["version"] != read["version"]
    stale = send(client, verb, item, {**read, "price": 7})
    assert stale.status_code == 409
    assert "Nothing was saved" in stale.json()["detail"]
    item.refresh_from_db()
    assert item.price == 6


@pytest.mark.parametrize("verb", ["put", "patch"])
def test_a_missing_version_is_refused(client: Client, item: Item, verb: str) -> None:
    data: dict[str, Any] = {"name": "new", "price": 7}
    answer = send(client, verb, item, data)
    assert (answer.status_code, list(answer.json())) == (400, ["version"])
    for wrong in ("", None, "x"):
        answer = send(client, verb, item, {**data, "version": wrong})
        assert (answer.status_code, list(answer.json())) == (400, ["version"])
    answer = send(client, verb, item, {**data, "version": item.version})
    assert (answer.status_code, answer.json()["price"]) == (200, 7)


def test_a_new_row_has_a_version_of_the_server(store: str) -> None:
    new = ItemSerializer(data={"name": "new", "price": 1, "version": 3})
    assert new.is_valid(raise_exception=True)
    made = new.save()
    assert made.version > 3
    assert new.data["version"] == made.version
    made.delete()


def test_a_row_that_changes_after_it_was_read(store: str, item: Item) -> None:
    late = ItemSerializer(item, data={"name": "new", "price": 9, "version": item.version})
    assert late.is_valid(raise_exception=True)
    Item.objects.using(store).get(pk=item.pk).save()
    with pytest.raises(APIException, match="Nothing was saved") as caught:
        late.save()
    assert (caught.value.status_code, caught.value.detail.code) == (409, "stale")


def test_the_version_has_whatever_name_it_has(store: str) -> None:
    class CountrySerializer(VersionedModelSerializer):
        class Meta:
            model = Country
            fields = "__all__"

    country = Country.objects.using(store).create(code="xx", name="Xanadu")
    read = CountrySerializer(country).data
    assert read["revision"] == country.revision
    assert not CountrySerializer(country, data={"code": "xx", "name": "X"}).is_valid()
    assert CountrySerializer(country, data=read).is_valid(raise_exception=True)


def test_a_serializer_without_the_version_is_refused(item: Item) -> None:
    class Without(VersionedModelSerializer):
        class Meta:
            model = Item
            fields = ("id", "name")

    with pytest.raises(ImproperlyConfigured, match="has to have 'version'"):
        Without(item).data  # noqa: B018 - makes the fields
