"""App configuration of the shop."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Describe the shop to Django."""

    name = "testproject.shop"
    label = "shop"
    verbose_name = "Shop"
