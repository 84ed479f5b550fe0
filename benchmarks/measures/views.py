"""A view under `locked_view`, beside the same view with the bare lock in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..adapter import Kind
from ..bench import Bench, Row
from .rates import rates

__all__ = ["BARE", "views"]

BARE = "with lock() inside"


@dataclass(frozen=True, slots=True)
class Served:
    """One way to write the view."""

    name: str
    kind: Kind
    make: Callable[[], Callable[..., Any]]

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()


def views(bench: Bench) -> list[Row]:
    """Measure how often a second the view can be called."""
    return rates(bench, "views", SERVED, _ready)


def _ready(served: Served) -> Callable[[], object]:
    from django.test import RequestFactory

    view, request = served.make(), RequestFactory().get("/")
    return lambda: view(request, pk=7)


def _plain() -> Callable[..., Any]:
    from django.http import HttpResponse

    def view(request: Any, pk: int) -> HttpResponse:
        return HttpResponse("done")

    return view


def _bare() -> Callable[..., Any]:
    from django_distlock import lock

    plain = _plain()

    def view(request: Any, pk: int) -> Any:
        with lock(f"views:{pk}"):
            return plain(request, pk)

    return view


def _locked() -> Callable[..., Any]:
    from django_distlock.views import locked_view

    return locked_view("views:{pk}")(_plain())


def _of_a_class() -> Callable[..., Any]:
    from django.http import HttpResponse
    from django.utils.decorators import method_decorator
    from django.views import View

    from django_distlock.views import locked_view

    @method_decorator(locked_view("views:{pk}"), name="dispatch")
    class Page(View):
        def get(self, request: Any, pk: int) -> HttpResponse:
            return HttpResponse("done")

    return Page.as_view()


def _bare_class() -> Callable[..., Any]:
    from django.http import HttpResponse
    from django.views import View

    from django_distlock import lock

    class Page(View):
        def get(self, request: Any, pk: int) -> HttpResponse:
            with lock(f"views:{pk}"):
                return HttpResponse("done")

    return Page.as_view()


SERVED = (
    Served("locked_view", "ours", _locked),
    Served(BARE, "baseline", _bare),
    Served("locked_view on a class", "ours", _of_a_class),
    Served(f"{BARE} of a class", "baseline", _bare_class),
)
