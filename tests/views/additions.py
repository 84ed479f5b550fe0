"""Views that write, under a lock that is put around them in every way."""

from __future__ import annotations

import functools
from typing import Any

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.views import View

from django_distlock.views import locked_view
from tests.backends.tools import Cell


def in_transaction(database: str) -> bool:
    """Tell whether this thread has a transaction open."""
    return connections[database].in_atomic_block


class Site:
    """Views that add one to a cell, in every way that a lock can be put around them."""

    def __init__(self, store: str, cell: Cell, name: str) -> None:
        self.store, self.cell, self.name = store, cell, name
        self.locked = locked_view(self.named, using=store, wait=20)

    def named(self, request: HttpRequest, *args: Any, **kwargs: Any) -> str:
        return self.name

    def add(self, request: HttpRequest, pk: int) -> HttpResponse:
        assert in_transaction(self.store)
        if self.store == "sqlite":  # as with IMMEDIATE: who reads first may not write later
            self.cell.execute("UPDATE cell SET value = value WHERE name = %s", [self.cell.name])
        self.cell.write(self.cell.read() + 1)
        if pk == 0:
            raise LookupError
        return HttpResponse()

    def of_class(self) -> type[View]:
        add = self.add

        class Page(View):
            def get(self, request: HttpRequest, pk: int) -> HttpResponse:
                return add(request, pk)

        return Page

    def function(self) -> Any:
        def view(request: HttpRequest, pk: int) -> HttpResponse:
            return self.add(request, pk)

        return self.locked(view)

    def on_dispatch(self) -> Any:
        return method_decorator(self.locked, name="dispatch")(self.of_class()).as_view()

    def around_as_view(self) -> Any:
        return self.locked(self.of_class().as_view())

    def below_another_decorator(self) -> Any:
        inner = self.function()

        @functools.wraps(inner)
        def view(request: HttpRequest, pk: int) -> HttpResponseBase:
            response: HttpResponseBase = inner(request, pk)
            return response

        return view

    def twice(self) -> Any:
        outer = locked_view(lambda *_, **__: f"{self.name}:outer", using=self.store)
        return outer(self.function())

    def twice_on_dispatch(self) -> Any:
        outer = locked_view(lambda *_, **__: f"{self.name}:outer", using=self.store)
        decorate = method_decorator([outer, self.locked], name="dispatch")
        return decorate(self.of_class()).as_view()
