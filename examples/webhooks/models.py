"""Subscriptions, changed by the events that a payment provider sends."""

from __future__ import annotations

from django.db import models

from django_distlock.models import FencedModel


class Subscription(FencedModel):
    """A customer's subscription; a late worker cannot change it, see FencedModel."""

    reference = models.CharField(max_length=40, unique=True)
    state = models.CharField(max_length=20, default="new")
    events = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.reference}: {self.state}"
