"""The public API as users type it; checked by mypy, and never run.

Each ``assert_type`` is a promise; each ``type: ignore`` a mistake that mypy has to see, for an
ignore that is not needed is an error, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, assert_type
from unittest import TestCase

from django.core.management.base import BaseCommand
from django.db import models
from django.http import HttpRequest, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View

from django_distlock import (
    Fenced,
    Lease,
    Leases,
    Lock,
    LockGroup,
    LockInfo,
    LockNotAcquiredError,
    StaleVersionError,
    current_lease,
    lock,
    lock_all,
    lock_for,
    locks,
    requires_fence,
)
from django_distlock.backends.base import BaseLockBackend
from django_distlock.commands import locked_command
from django_distlock.contrib.celery import locked_task
from django_distlock.testing import (
    aassert_held,
    advance_clock,
    aexpire_lease,
    assert_held,
    expire_lease,
    hold_elsewhere,
    override_locks,
)
from django_distlock.versions import VersionedModel, retry_on_conflict
from django_distlock.views import locked_view
from testproject.shop.models import Order


def by_hand() -> None:
    assert_type(lock("a"), Lock)
    lease = lock("a", using="redis", ttl=30, wait=0).acquire()
    assert_type(lease, Lease | None)
    lease.release()  # type: ignore[union-attr]
    if lease:
        assert_type(lease, Lease)
        assert_type(lease.fencing_token, int)
        assert_type(lease.remaining(), float)
        assert_type(lease.lost, bool)
        lease.check()
        lease.renew(60)
        lease.renew(timedelta(minutes=1))
        assert_type(lease.detach(), str)
        lease.release()
    assert_type(Lease.attach("handle"), Lease)
    assert_type(lock("a").acquire(wait=None), Lease | None)
    assert_type(lock("a").locked(), bool)
    lock("a", ttl="30")  # type: ignore[call-overload]
    lock("a", wait="10")  # type: ignore[call-overload]
    lock("a", on_contention="explode")  # type: ignore[call-overload]
    lock("a", timeout=5)  # type: ignore[call-overload]
    lock(5)  # type: ignore[call-overload]


def fenced_writes(lease: Lease, order: Order) -> None:
    assert_type(Order.objects.fenced(lease), Fenced[Order])
    assert_type(Order.objects.filter(pk=1).fenced(lease).filter(pk=2), Fenced[Order])
    assert_type(order.product.orders.fenced(lease).update(buyer="Ada"), int)
    assert_type(Order.objects.fenced(lease).create(buyer="Ada"), Order)
    assert_type(Order.objects.fenced(lease).get_or_create(pk=1), tuple[Order, bool])
    assert_type(order.fence, int)
    lease.save(order, update_fields=["parcel"])
    lease.save(order, force=True)  # type: ignore[call-arg]
    lease.save(5)  # type: ignore[arg-type]
    Order.objects.fenced(None)  # type: ignore[arg-type]
    Order.objects.fenced(lease).bulk_create([])  # type: ignore[attr-defined]

    @requires_fence
    def pack(pk: int, *, lease: Lease) -> str:
        return f"{pk} {lease.name}"

    @requires_fence(lease="under")
    async def apack(under: Lease) -> int:
        return under.fencing_token

    assert_type(pack(1, lease=lease), str)
    pack("1", lease=lease)  # type: ignore[arg-type]
    pack(1)  # type: ignore[call-arg]
    made: Coroutine[Any, Any, int] = apack(lease)
    made.close()


def in_a_block() -> None:
    with lock("a") as lease:
        assert_type(lease, Lease)
    with lock("a").atomic(using="default") as lease:
        assert_type(lease, Lease)
    transaction: AbstractContextManager[Lease] = lock("a").atomic()
    with transaction as lease:
        assert_type(lease, Lease)
    with lock_all("a", "b") as leases:
        assert_type(leases, Leases)
    assert_type(lock_all("a", lock("b")), LockGroup)
    assert_type(lock_all("a").acquire(), Leases | None)


async def in_async_code() -> None:
    async with lock("a", cancel_on_lost=True) as lease:
        assert_type(lease, Lease)
        await lease.arenew(5)
        await lease.arelease()
    assert_type(await lock("a").aacquire(wait=5), Lease | None)
    assert_type(await lock("a").alocked(), bool)
    async with lock_all("a", "b") as leases:
        assert_type(leases, Leases)
    assert_type(await lock_all("a", "b").aacquire(), Leases | None)
    assert_type(await Lease.aattach("handle"), Lease)


@lock("report:{tenant}", wait=0, on_contention="skip")
def skipped(tenant: str) -> int:
    """Build, or return None."""
    return 1


@lock("report:{tenant}", wait=0, on_contention="skip", default="")
async def askipped(tenant: str) -> int:
    """Build, or return a str."""
    return 1


def busy(error: LockNotAcquiredError, tenant: str) -> float:
    """Return what the caller gets instead."""
    return error.retry_after or 0.0


@lock("report:{tenant}", wait=0, on_contention=busy)
def replaced(tenant: str) -> int:
    """Build, or return how long to wait."""
    return 1


@lock("report:{tenant}", on_contention="skip").atomic()
def skipped_whole(tenant: str) -> int:
    return len(tenant)


@lock_all("a", "b", on_contention="skip", default="").atomic(using="default")
def both_skipped_whole(tenant: str) -> int:
    return len(tenant)


@lock_all("a:{tenant}", "b:{tenant}", on_contention="skip")
def both_skipped(tenant: str) -> int:
    """Build, or return None."""
    return 1


@lock("report:{tenant}", wait=0)
def build(tenant: str, dry_run: bool = False) -> int:
    """Build."""
    return 1


@lock("report:{tenant}")
async def abuild(tenant: str) -> int:
    """Build, asynchronously."""
    return 1


@lock_all("from:{source}", "to:{target}")
def move(source: int, *, target: int) -> str:
    """Move."""
    return ""


class Service:
    """Something with methods."""

    @lock("{self}:{x}")
    def method(self, x: int) -> str:
        """Do it."""
        return ""

    @classmethod
    @lock("{x}")
    def of_class(cls, x: int) -> str:
        """Do it for the class."""
        return ""


async def decorated() -> None:
    assert_type(build("x", dry_run=True), int)
    assert_type(skipped("x"), int | None)
    assert_type(await askipped("x"), int | str)
    assert_type(replaced("x"), int | float)
    assert_type(both_skipped("x"), int | None)
    assert_type(skipped_whole("x"), int | None)
    assert_type(both_skipped_whole("x"), int | str)
    skipped(5)  # type: ignore[arg-type]
    build(5)  # type: ignore[arg-type]
    build("x", tenants=1)  # type: ignore[call-arg]
    work: Coroutine[Any, Any, int] = abuild("x")
    assert_type(await work, int)
    assert_type(await abuild("x"), int)
    assert_type(move(1, target=2), str)
    move(1, 2)  # type: ignore[call-arg]
    assert_type(Service().method(1), str)
    Service().method("x")  # type: ignore[arg-type]
    assert_type(Service.of_class(1), str)


@locked_view("invoice:{pk}", wait=0, on_contention=429)
def pay(request: HttpRequest, pk: int) -> JsonResponse:
    """Answer."""
    return JsonResponse({})


@locked_view(lambda request, pk: f"{pk}", on_lost="ignore")
async def apay(request: HttpRequest, pk: int) -> JsonResponse:
    """Answer."""
    return JsonResponse({})


@method_decorator(locked_view("invoice:{pk}"), name="dispatch")
class Invoice(View):
    """A view."""


@locked_command("nightly", wait=5)
class Nightly(BaseCommand):
    """A command."""


async def views(request: HttpRequest) -> None:
    assert_type(pay(request, pk=1), JsonResponse)
    assert_type(await apay(request, 1), JsonResponse)
    pay(request, pk="x")  # type: ignore[arg-type]
    assert_type(Invoice(), Invoice)
    assert_type(Nightly(), Nightly)
    locked_view("a", on_contention="skip")  # type: ignore[arg-type]
    locked_view("a", timeout=5)  # type: ignore[call-arg]


async def looking(instance: object) -> None:
    assert_type(lock_for(instance, ttl=5), Lock)

    @lock_for(instance, on_contention="skip", default="")
    def of_instance() -> int:
        return 1

    assert_type(of_instance(), int | str)
    backend = locks["default"]
    assert_type(backend, BaseLockBackend)
    assert_type(backend.held(prefix="a"), Iterator[LockInfo])
    assert_type(backend.aheld(), AsyncIterator[LockInfo])
    assert_type(backend.force_release("x", fencing_token=7), LockInfo)
    assert_type(await backend.aforce_release("x"), LockInfo)
    for info in backend.held():
        assert_type(info.fencing_token, int | None)


@override_locks(using="default", held={"a", "b"}, wait=0, TTL=5)
def tested(number: int) -> str:
    """Test."""
    return ""


@override_locks(held={"default": ["a"]})
async def atested(number: int) -> str:
    """Test, asynchronously."""
    return ""


@override_locks()
class Tests(TestCase):
    """Tests."""

    number = 1


async def in_tests(lease: Lease) -> None:
    assert_type(tested(1), str)
    tested("x")  # type: ignore[arg-type]
    assert_type(await atested(1), str)
    assert_type(Tests().number, int)
    with override_locks() as memory:
        assert_type(memory, override_locks)
        assert_type(memory.taken(using="default"), list[str])
    async with hold_elsewhere("a", ttl=timedelta(minutes=1)) as elsewhere:
        assert_type(elsewhere, hold_elsewhere)
        await elsewhere.arelease()
    assert_type(assert_held("a", using="default"), LockInfo)
    assert_type(await aassert_held("a"), LockInfo)
    expire_lease(lease, reason="because")
    await aexpire_lease("a", using="default")
    advance_clock(timedelta(hours=1), renew=True)
    expire_lease(5)  # type: ignore[arg-type]
    advance_clock("5")  # type: ignore[arg-type]


class Page(VersionedModel):
    title = models.CharField(max_length=10)

    class Meta:
        app_label = "pages"

    def __str__(self) -> str:
        return self.title


@retry_on_conflict(times=5)
def rename(pk: int, title: str = "x") -> Page:
    page = Page.objects.get(pk=pk)
    assert_type(page, Page)
    assert_type(page.version, int)
    return page


@retry_on_conflict(longest=timedelta(seconds=1))
async def arename(pk: int) -> str:
    return (await Page.objects.aget(pk=pk)).title


async def versions() -> None:
    assert_type(rename(1, title="a"), Page)
    rename("1")  # type: ignore[arg-type]
    assert_type(await arename(1), str)
    assert_type(Page.objects.update(title="a"), int)
    try:
        rename(1)
    except StaleVersionError as error:
        assert_type(error.pks, tuple[object, ...])
        assert_type(error.attempts, int)


@locked_task("report:{tenant}", on_contention="retry", max_retries=5)
def report(tenant: str, year: int = 2024) -> int:
    assert_type(current_lease(), Lease)
    return year


@locked_task("import:{tenant}", once=True, bind=True, min_hold=timedelta(minutes=1))
def load(self: Any, tenant: str) -> str:
    return tenant


def tasks() -> None:
    assert_type(report("acme"), int)
    assert_type(load.delay("acme").get(), str)
    load.delay(5)  # type: ignore[arg-type]
    report.delay("acme", day=1)  # type: ignore[call-arg]
    locked_task("a", on_contention="queue")  # type: ignore[call-overload]
