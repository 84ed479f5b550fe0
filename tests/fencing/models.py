"""Tables whose rows are fenced, in as many ways as a project may have them.

Their app is not installed: `conftest.py` makes the tables. So mypy's plugin does not know them
either, and where it would tell the managers' types they are written down.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.db import models

from django_distlock import FencedManager, FencedQuerySet, FenceMarkField, FencingTokenField
from django_distlock.models import FencedModel
from django_distlock.versions import VersionedModel, VersionedQuerySet

__all__ = ["TABLES", "Account", "Document", "Entry", "Loose", "Plain", "Savings", "Stock"]


class Account(FencedModel):
    """The usual way: derived from the abstract base."""

    owner = models.CharField(max_length=300)
    balance = models.IntegerField(default=0)
    updated = models.DateTimeField(auto_now=True)
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True)

    objects: ClassVar[FencedManager[Account]]

    class Meta:
        app_label = "fencing_tests"


class Savings(Account):
    """Has a table of its own, and the fence in its parent's."""

    rate = models.IntegerField(default=1)

    objects: ClassVar[FencedManager[Savings]]  # type: ignore[assignment]

    class Meta:
        app_label = "fencing_tests"


class Proxy(Account):
    """The same table under another name."""

    objects: ClassVar[FencedManager[Proxy]]  # type: ignore[assignment]

    class Meta:
        app_label = "fencing_tests"
        proxy = True


class Entry(FencedModel):
    """Belongs to another row, so that filters can join."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="entries")
    amount = models.IntegerField(default=0)

    objects: ClassVar[FencedManager[Entry]]

    class Meta:
        app_label = "fencing_tests"


class DocumentQuerySet(FencedQuerySet["Document"]):
    """A queryset of the project's own."""

    def drafts(self) -> DocumentQuerySet:
        """Return what is not published."""
        return self.filter(text="")


class Document(models.Model):
    """Fields under names of its own, a key that it knows before it is saved, its own queryset."""

    uuid = models.UUIDField(primary_key=True, default=uuid.uuid4)
    title = models.CharField(max_length=300, unique=True)
    text = models.TextField(default="")
    seal = FenceMarkField()
    edition = FencingTokenField()

    objects = DocumentQuerySet.as_manager()

    class Meta:
        app_label = "fencing_tests"

    def __str__(self) -> str:
        return self.title


class Plain(models.Model):
    """Has the manager, and not the fields."""

    text = models.TextField(default="")

    objects = FencedQuerySet["Plain"].as_manager()

    class Meta:
        app_label = "fencing_tests"

    def __str__(self) -> str:
        return self.text


class StockQuerySet(VersionedQuerySet["Stock"], FencedQuerySet["Stock"]):
    """Raises the version, and has `fenced`."""


class Stock(VersionedModel, FencedModel):
    """Has a version as well."""

    title = models.CharField(max_length=300, unique=True)
    amount = models.IntegerField(default=0)

    objects: ClassVar[Any] = models.Manager.from_queryset(StockQuerySet)()

    class Meta:
        app_label = "fencing_tests"

    def __str__(self) -> str:
        return self.title


class Loose(models.Model):
    """Its fence may be empty, against what the checks say."""

    text = models.TextField(default="")
    token = FencingTokenField(null=True)  # type: ignore[misc]
    mark = FenceMarkField(null=True)  # type: ignore[misc]

    objects = FencedQuerySet["Loose"].as_manager()

    class Meta:
        app_label = "fencing_tests"

    def __str__(self) -> str:
        return self.text


TABLES: tuple[type[models.Model], ...] = (Account, Savings, Entry, Document, Plain, Stock, Loose)
