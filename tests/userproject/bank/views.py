"""Views that take a lock. ATOMIC_REQUESTS is on."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from django_distlock import LockNotAcquiredError, lock

from . import services


def deposit(request: HttpRequest, pk: int) -> HttpResponse:
    """Take the lock inside the view's transaction, without waiting."""
    try:
        with lock(services.lock_name(pk), wait=0):
            return HttpResponse(str(services.add(pk, 1)))
    except LockNotAcquiredError:
        return HttpResponse("busy", status=409)


@transaction.non_atomic_requests
def deposit_by_hand(request: HttpRequest, pk: int) -> HttpResponse:
    """Take the lock around a transaction of the view's own."""
    return HttpResponse(str(services.deposit_outside(pk, 1)))


@transaction.non_atomic_requests
async def deposit_async(request: HttpRequest, pk: int) -> HttpResponse:
    """Take the lock on the event loop."""
    async with lock(services.lock_name(pk)):
        return HttpResponse(str(await sync_to_async(services.add)(pk, 1)))
