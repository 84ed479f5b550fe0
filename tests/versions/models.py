"""Versioned models of all shapes."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models
from django.db.models import F

from django_distlock.versions import VersionedModel, VersionField


class Owner(models.Model):
    """Somebody that items belong to; not versioned."""

    name = models.CharField(max_length=50)

    items: Any  # the items of this owner
    objects: models.Manager[Owner] = models.Manager()

    def __str__(self) -> str:
        return self.name


class Item(VersionedModel):
    """The usual case."""

    name = models.CharField(max_length=200)
    price = models.IntegerField(default=0)
    kind = models.CharField(max_length=1, choices={"a": "Apple", "b": "Berry"}, default="a")
    owner = models.ForeignKey(Owner, models.SET_NULL, null=True, blank=True, related_name="items")
    changed = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class Fruit(Item):
    """The same rows under another name."""

    class Meta:
        proxy = True


class Country(VersionedModel):
    """A key that people choose, and another name for the version."""

    version = None  # type: ignore[assignment]
    revision = VersionField()
    code = models.CharField(max_length=2, primary_key=True)
    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Ticket(VersionedModel):
    """A key that is known before the row is there."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    text = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.text


class Line(VersionedModel):
    """A key of two parts."""

    pk = models.CompositePrimaryKey("order", "number")
    order = models.IntegerField()
    number = models.IntegerField()
    text = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.text


class Sum(VersionedModel):
    """A column that the database computes."""

    one = models.IntegerField(default=0)
    two = models.IntegerField(default=0)
    total = models.GeneratedField(
        expression=F("one") + F("two"), output_field=models.IntegerField(), db_persist=True
    )

    def __str__(self) -> str:
        return str(self.pk)


class Place(VersionedModel):
    """A parent that has the version."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Cafe(Place):
    """Its child."""

    stars = models.IntegerField(default=0)


class Bar(Cafe):
    """Its grandchild."""

    seats = models.IntegerField(default=0)


class Thing(models.Model):
    """A parent without a version."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Gadget(VersionedModel, Thing):
    """A child that has the version itself."""

    power = models.IntegerField(default=0)


ALL: list[type[models.Model]] = [
    Owner, Item, Country, Ticket, Line, Sum, Place, Cafe, Bar, Thing, Gadget,
]  # fmt: skip
