"""The lock that is found in many projects."""

from __future__ import annotations

from django.db import models


class Row(models.Model):
    """A lock that is held while its row is there."""

    name = models.CharField(max_length=200, unique=True)
    since = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "orm"

    def __str__(self) -> str:
        return self.name
