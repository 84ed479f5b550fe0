"""The demo's own products: made for a run, checked after it, removed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal

from django.utils import timezone

from testproject.shop.models import Order, Product

from .figures import Audit

STALE_AFTER = timedelta(hours=1)


def new_demo_id() -> str:
    """Return an id that tells this demo's rows from all others."""
    return uuid.uuid4().hex


def put_on_sale(demo: str, stock: int) -> Product:
    """Make a product that customers do not see."""
    return Product.objects.create(
        name="Flash sale demo", price=Decimal("1.00"), stock=stock, demo=demo
    )


def remove(demo: str) -> None:
    """Remove the products of a demo and their orders, and nothing else."""
    Order.objects.filter(product__demo=demo).delete()
    Product.objects.filter(demo=demo).delete()


def remove_stale() -> None:
    """Remove what demos left behind that were killed more than an hour ago."""
    old = Product.objects.exclude(demo="").filter(created__lt=timezone.now() - STALE_AFTER)
    for demo in set(old.values_list("demo", flat=True)):
        remove(demo)


def audit(product: Product, told: Iterable[str], *, locked: bool) -> Audit:
    """Compare the stock, the orders, and what the workers were told.

    Oversold are orders for which no piece was taken from the stock. Lost are orders that a worker
    was told of and that are not there, and, under a lock, pieces that were taken without an order.
    """
    stock_before = product.stock
    product.refresh_from_db()
    taken = stock_before - product.stock
    references = {str(value) for value in product.orders.values_list("reference", flat=True)}
    missing = len(set(told) - references)
    unaccounted = max(0, taken - len(references)) if locked else 0
    return Audit(
        orders=len(references),
        oversold=max(0, len(references) - taken),
        lost=max(missing, unaccounted),
    )
