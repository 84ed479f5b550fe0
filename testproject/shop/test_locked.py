"""Tests of what runs under each of the decorators: a function, an async view, a command."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import TestCase, TransactionTestCase, override_settings
from django.urls import reverse

from django_distlock.commands import AlreadyRunningError
from testproject.shop import sales
from testproject.shop.models import Order, Product
from testproject.shop.tests import LOCMEM, held_by_somebody_else


@override_settings(DISTLOCKS=LOCMEM)
class FunctionTests(TestCase):
    """A function under `lock`."""

    def test_the_prices_are_collected_once_at_a_time(self) -> None:
        Product.objects.create(name="Lamp", price=Decimal("9.50"), stock=2)
        assert sales.price_list() == {"Lamp": "9.50"}
        with held_by_somebody_else("price list"):
            assert sales.price_list() is None


@override_settings(DISTLOCKS=LOCMEM)
class CommandTests(TransactionTestCase):
    """A command of which one runs at a time."""

    def test_what_runs_short_is_filled_up(self) -> None:
        lamp = Product.objects.create(name="Lamp", price=1, stock=2)
        Product.objects.create(name="Vase", price=1, stock=9)
        said = StringIO()
        call_command("restock", pieces=10, stdout=said)
        lamp.refresh_from_db()
        assert (lamp.stock, said.getvalue()) == (12, "1 products are filled up.\n")

    def test_a_second_one_does_nothing(self) -> None:
        Product.objects.create(name="Lamp", price=1, stock=2)
        with held_by_somebody_else("restock below 5"):
            self.assertRaises(AlreadyRunningError, call_command, "restock")  # noqa: PT027
        assert Product.objects.get().stock == 2


@override_settings(DISTLOCKS=LOCMEM)
class AsyncViewTests(TestCase):
    """An async view under `locked_view`."""

    def test_the_parcel_of_an_order(self) -> None:
        lamp = Product.objects.create(name="Lamp", price=1, stock=2)
        order = Order.objects.create(product=lamp, buyer="Ada", parcel="P-1")
        where = reverse("shop:parcel", args=[order.pk])
        assert self.client.get(where).status_code == 302
        self.client.force_login(User.objects.create_user("boss", is_staff=True))
        assert self.client.get(where).json() == {"reference": str(order.reference), "parcel": "P-1"}
