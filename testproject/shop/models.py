"""Products and the orders for them."""

from __future__ import annotations

import uuid

from django.db import models

from django_distlock.models import FencedModel


class ProductQuerySet(models.QuerySet["Product"]):
    """Query products."""

    def for_sale(self) -> ProductQuerySet:
        """Return what a customer may see: everything but the rows of a running demo."""
        return self.filter(demo="")


class Product(models.Model):
    """Something to buy, and how many of it are left."""

    name = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.PositiveIntegerField()
    demo = models.CharField(
        max_length=32,
        blank=True,
        default="",
        editable=False,
        help_text="Set on the rows that `manage.py demo` made for itself and removes again.",
    )
    created = models.DateTimeField(auto_now_add=True)

    objects = ProductQuerySet.as_manager()

    class Meta:
        ordering = ("name", "pk")

    def __str__(self) -> str:
        return self.name

    @property
    def lock_name(self) -> str:
        """Name the lock that guards the stock of this product."""
        return f"stock:{self.pk}"


class Order(FencedModel):
    """One sale; its number of units has been taken from the stock.

    Who packs it holds the lock that is named after it, and writes the parcel under a fence.
    """

    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="orders")
    quantity = models.PositiveIntegerField(default=1)
    buyer = models.CharField(max_length=100)
    reference = models.UUIDField(
        default=uuid.uuid4,
        unique=True,
        editable=False,
        help_text="What the buyer was told; an order is lost when no row has it.",
    )
    fencing_token = models.BigIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text="Token of the lease under which the order was written.",
    )
    parcel = models.CharField(
        max_length=100, blank=True, default="", help_text="The parcel that it was packed into."
    )
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created", "-pk")

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product} for {self.buyer}"
