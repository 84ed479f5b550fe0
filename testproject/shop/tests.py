"""Tests of the shop's pages and of the demo's arithmetic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from unittest import mock

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import SimpleTestCase, TestCase, override_settings
from django.urls import reverse
from django.utils import timezone

from django_distlock import LockBackendError, lock
from django_distlock.testing import override_locks
from testproject.shop import sales
from testproject.shop.demo.figures import (
    Audit,
    KillResult,
    count_overlaps,
    handovers_ms,
    limit_result,
    most_at_once,
    percentile,
    race_result,
)
from testproject.shop.demo.journal import Turn
from testproject.shop.demo.stock import STALE_AFTER, audit, put_on_sale, remove, remove_stale
from testproject.shop.models import Order, Product

LOCMEM = {"default": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"}}


@contextmanager
def held_by_somebody_else(name: str) -> Iterator[None]:
    """Hold a lock in another thread while the block runs."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock(name):
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(10)
        yield
    finally:
        done.set()
        holder.join(10)


class ShopTests(TestCase):
    """Look at the list, and buy."""

    def setUp(self) -> None:
        self.lamp = Product.objects.create(name="Lamp", price=Decimal("9.50"), stock=2)
        self.url = reverse("shop:buy", args=[self.lamp.pk])

    def stock(self) -> int:
        self.lamp.refresh_from_db()
        return self.lamp.stock

    def test_the_list_shows_products_and_what_is_left(self) -> None:
        Product.objects.create(name="Vase", price=1, stock=0)
        response = self.client.get(reverse("shop:products"))
        self.assertContains(response, "Lamp")
        self.assertContains(response, "9.50")
        self.assertContains(response, "Only 2 left")
        self.assertContains(response, "Sold out")

    def test_the_list_says_how_to_get_products(self) -> None:
        Product.objects.all().delete()
        self.assertContains(self.client.get(reverse("shop:products")), "loaddata products")

    def test_the_sample_products_load(self) -> None:
        call_command("loaddata", "products", verbosity=0)
        self.assertContains(self.client.get(reverse("shop:products")), "Mechanical keyboard")

    def test_buying_takes_from_the_stock_and_writes_an_order(self) -> None:
        response = self.client.post(self.url, {"quantity": 2, "buyer": "Ada"}, follow=True)
        self.assertRedirects(response, reverse("shop:products"))
        self.assertContains(response, "Yours: 2 x Lamp")
        order = Order.objects.get()
        assert (order.product, order.quantity, order.buyer) == (self.lamp, 2, "Ada")
        assert self.stock() == 0

    def test_the_button_alone_buys_one_for_a_guest(self) -> None:
        self.client.post(self.url)
        assert str(Order.objects.get()) == "1 x Lamp for Guest"
        assert self.stock() == 1

    def test_a_later_sale_has_a_higher_fencing_token(self) -> None:
        self.client.post(self.url)
        self.client.post(self.url)
        later, earlier = Order.objects.order_by("-pk").values_list("fencing_token", flat=True)
        assert later is not None
        assert earlier is not None
        assert later > earlier

    def test_the_lock_is_free_after_a_sale(self) -> None:
        self.client.post(self.url)
        assert not lock(self.lamp.lock_name).locked()

    def test_sold_out(self) -> None:
        Product.objects.update(stock=0)
        response = self.client.post(self.url)
        self.assertContains(response, "Lamp is sold out.", status_code=409)
        assert "Retry-After" not in response
        assert not Order.objects.exists()

    def test_too_few_left(self) -> None:
        response = self.client.post(self.url, {"quantity": 3})
        self.assertContains(response, "Only 2 of Lamp left.", status_code=409)
        assert self.stock() == 2

    @override_settings(DISTLOCKS=LOCMEM)
    def test_busy(self) -> None:
        with (
            held_by_somebody_else(self.lamp.lock_name),
            mock.patch.object(sales, "WAIT_SECONDS", 0),
        ):
            response = self.client.post(self.url)
        self.assertContains(response, "please try again", status_code=409)
        assert response["Retry-After"] == "1"
        assert not Order.objects.exists()
        assert self.stock() == 2

    @override_settings(DISTLOCKS=LOCMEM)
    def test_another_product_is_not_busy(self) -> None:
        with held_by_somebody_else("stock:0"):
            response = self.client.post(self.url)
        assert response.status_code == 302

    def test_a_store_that_fails_sells_nothing(self) -> None:
        with mock.patch.object(sales, "lock", side_effect=LockBackendError("down")):
            response = self.client.post(self.url)
        self.assertContains(response, "Nothing was bought", status_code=503)
        assert self.stock() == 2

    def test_wrong_quantities(self) -> None:
        for quantity in ("0", "-1", "11", "many"):
            with self.subTest(quantity):
                response = self.client.post(self.url, {"quantity": quantity})
                assert response.status_code == 400
        assert self.stock() == 2

    def test_only_post_buys(self) -> None:
        assert self.client.get(self.url).status_code == 405
        assert self.client.post(reverse("shop:buy", args=[0])).status_code == 404

    def test_rows_of_a_demo_are_not_for_sale(self) -> None:
        Product.objects.update(demo="running")
        self.assertNotContains(self.client.get(reverse("shop:products")), "Lamp")
        assert self.client.post(self.url).status_code == 404


class OfficeTests(TestCase):
    """Restock and export: views under a lock."""

    def setUp(self) -> None:
        self.lamp = Product.objects.create(name="Lamp", price=1, stock=2)
        self.restock = reverse("shop:restock", args=[self.lamp.pk])
        self.orders = reverse("shop:orders")
        self.client.force_login(User.objects.create_superuser("root"))

    def test_restocking_adds_to_the_stock(self) -> None:
        assert self.client.post(self.restock, {"pieces": 5}).json() == {"stock": 7}
        self.lamp.refresh_from_db()
        assert self.lamp.stock == 7
        assert not lock(self.lamp.lock_name).locked()

    def test_a_wrong_number(self) -> None:
        assert self.client.post(self.restock, {"pieces": 0}).status_code == 400
        assert self.client.get(self.restock).status_code == 405

    def test_not_while_somebody_buys(self) -> None:
        with override_locks(held=[self.lamp.lock_name]):
            response = self.client.post(
                self.restock, {"pieces": 5}, headers={"Accept": "application/json"}
            )
        assert response.status_code == 409
        assert response.json()["reason"] == "held"
        assert 1 <= int(response["Retry-After"]) <= 30
        self.lamp.refresh_from_db()
        assert self.lamp.stock == 2

    def test_the_export_sends_every_order(self) -> None:
        Order.objects.create(product=self.lamp, buyer="Ada", quantity=3)
        response = self.client.get(self.orders)
        assert lock("orders export").locked()
        lines = response.getvalue().decode().splitlines()
        assert lines[0] == "reference,product,quantity"
        assert lines[1].endswith(",Lamp,3")
        assert not lock("orders export").locked()

    @override_locks(held=["orders export"])
    def test_one_export_at_a_time(self) -> None:
        response = self.client.get(self.orders)
        self.assertContains(response, "Already in progress", status_code=429)
        assert "Retry-After" in response

    def test_strangers_take_no_lock(self) -> None:
        self.client.logout()
        for url in (self.restock, self.orders):
            assert self.client.get(url).status_code in (302, 405)


class AdminTests(TestCase):
    """Open the pages of the admin."""

    def test_products_and_orders_are_listed(self) -> None:
        self.client.force_login(User.objects.create_superuser("root"))
        product = Product.objects.create(name="Lamp", price=1, stock=2)
        Order.objects.create(product=product, buyer="Ada")
        for model, text in (("product", "Lamp"), ("order", "Ada")):
            with self.subTest(model):
                page = self.client.get(reverse(f"admin:shop_{model}_changelist"))
                self.assertContains(page, text)


def turn(worker: int, asked: int, granted: int, released: int) -> Turn:
    """Return a turn with times in ms."""
    ms = 1_000_000
    return Turn(worker, asked * ms, granted * ms, released * ms, None)


class FigureTests(SimpleTestCase):
    """Work out the figures of the demo from records with known times."""

    def test_a_hand_over_is_to_another_worker_that_was_waiting(self) -> None:
        turns = [
            turn(2, 1, 13, 20),  # waited while 1 held the lock: 3 ms
            turn(1, 0, 0, 10),
            turn(3, 25, 26, 30),  # came when it was free
            turn(3, 30, 31, 40),  # the same worker again
        ]
        assert handovers_ms(turns) == [3.0]
        assert count_overlaps(turns) == 0

    def test_overlaps_are_counted_against_the_longest_hold(self) -> None:
        turns = [turn(1, 0, 0, 100), turn(2, 0, 10, 20), turn(3, 0, 50, 60), turn(2, 0, 100, 120)]
        assert count_overlaps(turns) == 2

    def test_percentiles_are_values_that_occurred(self) -> None:
        values = [float(n) for n in range(100, 0, -1)]
        assert percentile(values, 0.99) == 99
        assert percentile(values[-2:], 0.99) == 2
        assert percentile([], 0.5) is None

    def test_a_race_is_measured_from_its_first_asking_to_its_last_release(self) -> None:
        turns = [turn(1, 0, 0, 100), turn(2, 0, 150, 500)]
        result = race_result("table", "default", turns, Audit(orders=2, oversold=0, lost=0))
        assert result.orders_per_s == 4.0
        assert result.worst_wait_ms == 150.0
        assert (result.handover_median_ms, result.handover_p99_ms) == (50.0, 50.0)
        assert result.failures == []

    def test_whatever_a_lock_has_to_prevent_is_a_failure(self) -> None:
        turns = [turn(1, 0, 0, 100), turn(2, 0, 50, 500)]
        audit = Audit(orders=2, oversold=1, lost=3)
        locked = race_result("table", "default", turns, audit)
        assert len(locked.failures) == 3
        assert locked.handover_median_ms is None
        unlocked = race_result("none", None, turns, audit)
        assert unlocked.failures == ["none: 3 orders were lost"]

    def test_more_at_once_than_the_limit_is_a_failure(self) -> None:
        turns = [turn(1, 0, 0, 100), turn(2, 0, 50, 150), turn(3, 0, 100, 200)]
        assert most_at_once(turns) == 2
        turns = [replace(each, slot=0) for each in turns]
        assert limit_result("table", "default", 2, turns).failures == [
            "table: 2 holds had a slot that was held"
        ]
        slots = [replace(each, slot=slot) for slot, each in enumerate(turns)]
        assert limit_result("table", "default", 1, slots).failures == [
            "table: 2 at once under a limit of 1"
        ]

    def test_a_kill_after_which_nobody_gets_the_lock_is_a_failure(self) -> None:
        audit = Audit(orders=0, oversold=0, lost=0)
        good = KillResult("table", "default", 1500, 2500, 2, (1400.0, 1500.0), 0, audit)
        assert good.failures == []
        assert not good.late
        stuck = KillResult("table", "default", 1500, 2500, 2, (), 0, audit)
        assert stuck.failures == ["table, after the kill: 2 of 2 workers never got the lock"]
        assert stuck.late


class AuditTests(TestCase):
    """Compare stock, orders and what the workers were told."""

    def sold(self, *, stock_left: int, orders: int) -> tuple[Product, list[str]]:
        """Return a product of which five were on sale, and the orders that were written."""
        product = put_on_sale("running", 5)
        Product.objects.filter(pk=product.pk).update(stock=stock_left)
        made = [Order.objects.create(product=product, buyer="worker") for _ in range(orders)]
        return product, [str(order.reference) for order in made]

    def test_all_is_well(self) -> None:
        product, told = self.sold(stock_left=0, orders=5)
        assert audit(product, told, locked=True) == Audit(orders=5, oversold=0, lost=0)

    def test_oversold(self) -> None:
        product, told = self.sold(stock_left=0, orders=7)
        assert audit(product, told, locked=True) == Audit(orders=7, oversold=2, lost=0)

    def test_an_order_that_was_told_and_is_not_there_is_lost(self) -> None:
        product, told = self.sold(stock_left=0, orders=5)
        Order.objects.filter(reference=told[0]).delete()
        assert audit(product, told, locked=False) == Audit(orders=4, oversold=0, lost=1)

    def test_under_a_lock_a_piece_taken_without_an_order_is_lost(self) -> None:
        product, told = self.sold(stock_left=0, orders=4)
        assert audit(product, told, locked=True).lost == 1
        product.stock = 5
        assert audit(product, told, locked=False).lost == 0

    def test_only_the_rows_of_the_demo_are_removed(self) -> None:
        product, _ = self.sold(stock_left=4, orders=1)
        own = Product.objects.create(name="Lamp", price=1, stock=1)
        Order.objects.create(product=own, buyer="Ada")
        remove(product.demo)
        assert list(Product.objects.all()) == [own]
        assert Order.objects.get().product == own

    def test_rows_of_a_demo_killed_long_ago_are_removed(self) -> None:
        old, _ = self.sold(stock_left=4, orders=1)
        running = put_on_sale("another", 5)
        Product.objects.filter(pk=old.pk).update(created=timezone.now() - 2 * STALE_AFTER)
        remove_stale()
        assert list(Product.objects.all()) == [running]
