"""Packing: the step of an order that two workers must not take at the same time."""

from __future__ import annotations

from django_distlock import Lease, Lock, lock_for, requires_fence

from .models import Order


def packing_of(order: Order, *, using: str = "default", ttl: float = 30) -> Lock:
    """Return the lock of who packs an order."""
    return lock_for(order, using=using, ttl=ttl, wait=30)


@requires_fence
def pack(order: Order, parcel: str, *, lease: Lease) -> None:
    """Write down the parcel of an order, unless a newer holder of its lock has packed it.

    Raise `FenceRejectedError` then, and `Order.DoesNotExist` when the order was removed.
    """
    if not Order.objects.fenced(lease).filter(pk=order.pk).update(parcel=parcel):
        raise Order.DoesNotExist(f"Order {order.pk} was removed.")
    order.parcel = parcel


def pack_without_fence(order: Order, parcel: str, *, lease: Lease) -> None:
    """Do the same and rely on the lock alone; only to show what happens then."""
    lease.check()
    Order.objects.filter(pk=order.pk).update(parcel=parcel)
    order.parcel = parcel
