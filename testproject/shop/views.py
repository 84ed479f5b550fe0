"""The flash sale: a list of products, and a button to buy one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from django_distlock import LockBackendError, LockNotAcquiredError

from .forms import BuyForm
from .models import Order, Product
from .sales import SoldOutError, sell

RETRY_AFTER_SECONDS = 1


@require_safe
def product_list(request: HttpRequest) -> HttpResponse:
    """Show what is on sale."""
    return _page(request)


@require_POST
def buy(request: HttpRequest, pk: int) -> HttpResponse:
    """Buy a product.

    Answer 302 to the list when sold, 409 when sold out, 409 with `Retry-After` when too many buy
    the same product right now, 503 when the lock's store does not answer, 400 for a wrong form.
    """
    product = get_object_or_404(Product.objects.for_sale(), pk=pk)
    form = BuyForm(request.POST)
    if not form.is_valid():
        return _problem(request, 400, "Choose between 1 and 10 pieces.")
    try:
        order = sell(product, **form.cleaned_data)
    except SoldOutError as error:
        if error.product.stock:
            return _problem(request, 409, f"Only {error.product.stock} of {product.name} left.")
        return _problem(request, 409, f"{product.name} is sold out.")
    except LockNotAcquiredError:
        text = f"Many people want {product.name} right now. Nothing was bought; please try again."
        return _problem(request, 409, text, retry=True)
    except LockBackendError:
        text = "The shop cannot take orders at the moment. Nothing was bought."
        return _problem(request, 503, text, retry=True)
    messages.success(request, f"Yours: {order.quantity} x {product.name}. Thank you!")
    return redirect("shop:products")


def _problem(
    request: HttpRequest, status: int, message: str, *, retry: bool = False
) -> HttpResponse:
    """Show the list again with the reason why nothing was bought."""
    response = _page(request, status=status, problem=message)
    if retry:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def _page(request: HttpRequest, *, status: int = 200, problem: str = "") -> HttpResponse:
    products = Product.objects.for_sale()
    context = {
        "products": products,
        "orders": Order.objects.filter(product__in=products).select_related("product")[:5],
        "problem": problem,
    }
    return render(request, "shop/products.html", context, status=status)
