"""The shop in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from .models import Order, Product

if TYPE_CHECKING:
    ProductModelAdmin = admin.ModelAdmin[Product]
    OrderModelAdmin = admin.ModelAdmin[Order]
else:  # the class takes no type parameter while the program runs
    ProductModelAdmin = OrderModelAdmin = admin.ModelAdmin


@admin.register(Product)
class ProductAdmin(ProductModelAdmin):
    """Edit products and their stock."""

    list_display = ("name", "price", "stock", "created")
    search_fields = ("name",)


@admin.register(Order)
class OrderAdmin(OrderModelAdmin):
    """Look at orders, newest first."""

    list_display = (
        "reference",
        "product",
        "quantity",
        "buyer",
        "fencing_token",
        "parcel",
        "created",
    )
    list_filter = ("product",)
    list_select_related = ("product",)
    search_fields = ("buyer", "reference")
    readonly_fields = ("reference", "fencing_token", "parcel", "created")
    date_hierarchy = "created"
