"""The row of django-concurrency; imported only where that is installed."""

from __future__ import annotations

from concurrency.fields import IntegerVersionField
from django.db import models


class Record(models.Model):
    """A row with a version of django-concurrency's, as `orm.models.Plain` otherwise."""

    name = models.CharField(max_length=200, unique=True)
    taken = models.BooleanField(default=False)
    count = models.IntegerField(default=0)
    version = IntegerVersionField()

    class Meta:
        app_label = "concurrent"

    def __str__(self) -> str:
        return self.name
