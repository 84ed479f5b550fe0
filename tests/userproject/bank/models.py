"""Accounts."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Account(models.Model):
    """An account with a balance, which two deposits at once would spoil without a lock."""

    owner = models.CharField(max_length=50, unique=True)
    balance = models.IntegerField(default=0)

    objects: ClassVar[models.Manager[Account]] = models.Manager()

    def __str__(self) -> str:
        return self.owner
