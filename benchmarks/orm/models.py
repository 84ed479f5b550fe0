"""The lock that is found in many projects, and rows with and without a version."""

from __future__ import annotations

from django.db import models

from django_distlock.versions import VersionedModel


class Row(models.Model):
    """A lock that is held while its row is there, or locked."""

    name = models.CharField(max_length=200, unique=True)
    since = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "orm"

    def __str__(self) -> str:
        return self.name


class Plain(models.Model):
    """A row that anybody overwrites."""

    name = models.CharField(max_length=200, unique=True)
    taken = models.BooleanField(default=False)
    count = models.IntegerField(default=0)

    class Meta:
        app_label = "orm"

    def __str__(self) -> str:
        return self.name


class Versioned(VersionedModel):
    """The same with a version."""

    name = models.CharField(max_length=200, unique=True)
    taken = models.BooleanField(default=False)
    count = models.IntegerField(default=0)

    class Meta(VersionedModel.Meta):
        app_label = "orm"
        abstract = False

    def __str__(self) -> str:
        return self.name
