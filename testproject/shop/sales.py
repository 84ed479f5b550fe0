"""Selling: the one place where the shop takes something from its stock."""

from __future__ import annotations

from django_distlock import lock

from .models import Order, Product

HOLD_SECONDS = 10
WAIT_SECONDS = 2


class SoldOutError(Exception):
    """There is less in stock than the buyer asked for."""

    def __init__(self, product: Product) -> None:
        super().__init__(f"{product.name} is sold out.")
        self.product = product


def sell(product: Product, *, quantity: int, buyer: str) -> Order:
    """Take units from the stock and write the order, one buyer after the other.

    Return the order. Raise `SoldOutError` when too little is left, and `LockTimeoutError` when the
    other buyers did not finish in time.
    """
    # The transaction is inside the lock: it commits first, so the next buyer reads the new stock.
    with lock(product.lock_name, ttl=HOLD_SECONDS, wait=WAIT_SECONDS).atomic() as lease:
        current = Product.objects.get(pk=product.pk)
        if current.stock < quantity:
            raise SoldOutError(current)
        current.stock -= quantity
        current.save(update_fields=["stock"])
        return Order.objects.create(
            product=current,
            quantity=quantity,
            buyer=buyer,
            fencing_token=lease.fencing_token,
        )


@lock("price list", wait=0, on_contention="skip")
def price_list() -> dict[str, str]:
    """Return the prices; who asks while they are being collected does without."""
    prices = Product.objects.for_sale().values_list("name", "price")
    return {name: str(price) for name, price in prices}
