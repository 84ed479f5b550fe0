"""The shop's one page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_distlock import LockNotAcquiredError, lock


def pay(request: HttpRequest, pk: int) -> HttpResponse:
    """Pay an invoice: 200, or 409 when somebody else is at it."""
    try:
        with lock(f"invoice:{pk}", wait=0):
            return HttpResponse("paid")
    except LockNotAcquiredError:
        return HttpResponse("busy", status=409)


urlpatterns = [path("pay/<int:pk>", pay)]
