"""Tests of the shop's Celery tasks."""

from __future__ import annotations

from decimal import Decimal

from django.test import TestCase, override_settings
from django.utils import timezone

from django_distlock import LockNotAcquiredError
from django_distlock.testing import override_locks
from testproject.shop import sales, tasks
from testproject.shop.models import Product
from testproject.shop.tests import LOCMEM, held_by_somebody_else


@override_settings(DISTLOCKS=LOCMEM)
class TaskTests(TestCase):
    """Tasks, run where they are sent."""

    def setUp(self) -> None:
        self.product = Product.objects.create(name="lamp", price=Decimal(9), stock=5)

    def test_the_stock_is_counted_once_a_minute(self) -> None:
        with override_locks():
            assert tasks.count_stock.delay().get() == 5
            assert tasks.count_stock.delay().get() is None  # the other host's beat

    def test_an_order_is_packed_under_its_fence(self) -> None:
        order = sales.sell(self.product, quantity=2, buyer="Ada")
        assert tasks.pack_order.delay(order.pk, "A-1").get() == "A-1"
        order.refresh_from_db()
        assert order.parcel == "A-1"

    def test_nobody_packs_what_somebody_else_packs(self) -> None:
        order = sales.sell(self.product, quantity=2, buyer="Ada")
        with held_by_somebody_else(f"shop.order:{order.pk}"):
            result = tasks.pack_order.apply((order.pk, "A-1"), throw=False)
        assert isinstance(result.result, LockNotAcquiredError)

    def test_the_sales_of_a_year(self) -> None:
        sales.sell(self.product, quantity=2, buyer="Ada")
        sales.sell(self.product, quantity=1, buyer="Bo")
        year = timezone.now().year
        assert tasks.report_sales.delay(year).get() == {"lamp": 3}
