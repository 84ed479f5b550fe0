"""A site made of what a test gives it, and locks that somebody else holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_distlock import lock, locks
from tests.backends.tools import elsewhere

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    }
]


@contextlib.contextmanager
def site(*patterns: Any, **settings: Any) -> Iterator[Client]:
    """Serve URL patterns for a while; yield a client that has Django raise what views raise."""
    settings = {"TEMPLATES": TEMPLATES, "MIDDLEWARE": [], **settings}
    with override_settings(
        ROOT_URLCONF=patterns, ALLOWED_HOSTS=["testserver", "127.0.0.1"], **settings
    ):
        yield Client()


@contextlib.contextmanager
def page(view: Callable[..., Any], **settings: Any) -> Iterator[Client]:
    """Serve one view, at `/<pk>/`."""
    with site(path("<int:pk>/", view), **settings) as client:
        yield client


@contextlib.contextmanager
def atomic_requests(*databases: str) -> Iterator[None]:
    """Turn ATOMIC_REQUESTS on for databases."""
    for database in databases:
        connections.settings[database]["ATOMIC_REQUESTS"] = True
    try:
        yield
    finally:
        for database in databases:
            connections.settings[database]["ATOMIC_REQUESTS"] = False


@contextlib.contextmanager
def taken(name: str, using: str, ttl: float = 30) -> Iterator[None]:
    """Have another thread hold a lock while the block runs."""
    lease = elsewhere(lock(name, using=using, ttl=ttl, wait=0).acquire)
    assert lease is not None
    try:
        yield
    finally:
        lease.release()


def is_held(name: str, using: str) -> bool:
    """Tell whether anybody holds a lock, as the store says."""
    return locks[using].call("inspect", name) is not None


def plain(request: HttpRequest, pk: int = 0) -> HttpResponse:
    """Answer OK."""
    return HttpResponse("done")
