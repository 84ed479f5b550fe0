"""Addresses of the shop."""

from __future__ import annotations

from django.urls import path

from . import office, views

app_name = "shop"

urlpatterns = [
    path("", views.product_list, name="products"),
    path("buy/<int:pk>/", views.buy, name="buy"),
    path("restock/<int:pk>/", office.Restock.as_view(), name="restock"),
    path("parcel/<int:pk>/", office.parcel, name="parcel"),
    path("orders.csv", office.orders, name="orders"),
]
