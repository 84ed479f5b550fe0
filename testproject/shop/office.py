"""The back office: views that run under a lock."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from django.contrib.admin.views.decorators import staff_member_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import aget_object_or_404, get_object_or_404
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_safe

from django_distlock.views import locked_view

from .forms import RestockForm
from .models import Order, Product
from .sales import HOLD_SECONDS, WAIT_SECONDS

# The lock of a sale (`Product.lock_name`), so that none is made in between.
stock_lock = locked_view("stock:{pk}", ttl=HOLD_SECONDS, wait=WAIT_SECONDS)


@method_decorator([staff_member_required, stock_lock], name="dispatch")
class Restock(View):
    """Put more pieces into the stock of a product."""

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Add the pieces, and answer with the new stock; 400 for a wrong form."""
        form = RestockForm(request.POST)
        if not form.is_valid():
            return JsonResponse({"errors": form.errors}, status=400)
        with transaction.atomic(durable=True):
            product = get_object_or_404(Product.objects.for_sale(), pk=pk)
            product.stock += form.cleaned_data["pieces"]
            product.save(update_fields=["stock"])
        return JsonResponse({"stock": product.stock})


@require_safe
@staff_member_required
@locked_view("shop.order:{pk}", wait=WAIT_SECONDS)
async def parcel(request: HttpRequest, pk: int) -> JsonResponse:
    """Tell the parcel of an order, and wait for who is packing it just now."""
    order = await aget_object_or_404(Order.objects.filter(product__demo=""), pk=pk)
    return JsonResponse({"reference": order.reference, "parcel": order.parcel})


class _Echo:
    """Gives back what is written to it."""

    def write(self, line: str) -> str:
        return line


@require_safe
@staff_member_required
@locked_view("orders export", wait=0, on_contention=429)
def orders(request: HttpRequest) -> StreamingHttpResponse:
    """Send all orders as CSV, line by line; one export runs at a time, until its last line."""
    writer = csv.writer(_Echo())
    found = Order.objects.filter(product__demo="").select_related("product")

    def lines() -> Iterator[str]:
        yield writer.writerow(["reference", "product", "quantity"])
        for order in found.iterator(chunk_size=500):
            yield writer.writerow([order.reference, order.product.name, order.quantity])

    headers = {"Content-Disposition": 'attachment; filename="orders.csv"'}
    return StreamingHttpResponse(lines(), content_type="text/csv", headers=headers)
