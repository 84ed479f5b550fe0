"""The tables that the examples read and write."""

from __future__ import annotations

from django.db import models

from django_distlock.models import FencedModel
from django_distlock.versions import VersionedModel


class Product(models.Model):
    """Something to sell."""

    name = models.CharField(max_length=100)
    stock = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Article(VersionedModel):
    """What several people edit."""

    title = models.CharField(max_length=100)
    text = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.title


class Account(FencedModel):
    """Money, and the highest fencing token that has written it."""

    balance = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"account {self.pk}"


class Invoice(models.Model):
    """Something to be paid once."""

    paid = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"invoice {self.pk}"
