"""Work in the background: Celery tasks that run under locks."""

from __future__ import annotations

from django.db.models import Sum

from django_distlock import current_lease
from django_distlock.contrib.celery import locked_task
from testproject.celery import app

from .models import Order, Product
from .packing import pack


@locked_task("stock count", app=app, on_contention="skip", min_hold=60)
def count_stock() -> int:
    """Return how many pieces are in stock; sent each minute by the beats of two hosts."""
    found = Product.objects.for_sale().aggregate(pieces=Sum("stock"))
    return int(found["pieces"] or 0)


@locked_task("shop.order:{order_pk}", app=app, on_contention="retry", contention_retries=20)
def pack_order(order_pk: int, parcel: str) -> str:
    """Pack an order, under the lock that whoever packs by hand takes, too (`packing_of`)."""
    order = Order.objects.get(pk=order_pk)
    pack(order, parcel, lease=current_lease())
    return order.parcel


@locked_task("sales report:{year}", app=app, once=True, autoretry_for=(OSError,), acks_late=True)
def report_sales(year: int) -> dict[str, int]:
    """Return the pieces sold of each product in a year; queued once, whoever asks for it."""
    sold = Order.objects.filter(created__year=year, product__demo="")
    pieces = sold.values_list("product__name").annotate(Sum("quantity")).order_by("product__name")
    return {name: int(number) for name, number in pieces}
