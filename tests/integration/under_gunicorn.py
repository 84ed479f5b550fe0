"""Views that gunicorn serves: what is counted under a lock, and a lock that is held for a while."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.urls import path

django.setup()
settings.ALLOWED_HOSTS = ["*"]
settings.MIDDLEWARE = []
settings.ROOT_URLCONF = __name__

from django_distlock import Lock, lock  # noqa: E402 - its settings are read above

THINKING = 0.002


def asked(request: HttpRequest) -> Lock:
    """Return the lock that a request is about; it would outlive the test."""
    return lock(request.GET["name"], using=request.GET["alias"], wait=60, ttl=300)


def count(request: HttpRequest) -> HttpResponse:
    """Read, think, write."""
    with asked(request):
        file = Path(request.GET["file"])
        value = int(file.read_text())
        time.sleep(THINKING)
        file.write_text(str(value + 1))
    return HttpResponse("counted")


async def acount(request: HttpRequest) -> HttpResponse:
    """Count as `count`."""
    async with asked(request):
        file = Path(request.GET["file"])
        value = int(file.read_text())
        await asyncio.sleep(THINKING)
        file.write_text(str(value + 1))
    return HttpResponse("counted")


def hold(request: HttpRequest) -> HttpResponse:
    with asked(request):
        time.sleep(float(request.GET["seconds"]))
    return HttpResponse("held")


async def ahold(request: HttpRequest) -> HttpResponse:
    async with asked(request):
        await asyncio.sleep(float(request.GET["seconds"]))
    return HttpResponse("held")


urlpatterns = [path(view.__name__, view) for view in (count, acount, hold, ahold)]
wsgi = WSGIHandler()
asgi = ASGIHandler()

# Under --preload that is in the master process: its workers inherit the connections.
for alias in os.environ["GUNICORN_ALIASES"].split():
    with lock(f"preload {os.getpid()}", using=alias):
        pass
