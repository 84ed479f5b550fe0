"""`manage.py restock`: what cron runs at night, on one host at a time."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import F

from django_distlock.commands import LockedCommand
from testproject.shop.models import Product


class Command(LockedCommand):
    """Fill up what runs short; a second one that is started meanwhile ends at once."""

    help = "Put pieces into the stock of every product that runs short."
    lock_name = "restock below {below}"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--below", type=int, default=5, help="What is short (5).")
        parser.add_argument("--pieces", type=int, default=20, help="How many to put in (20).")

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic(durable=True):
            short = Product.objects.for_sale().filter(stock__lt=options["below"])
            filled = short.update(stock=F("stock") + options["pieces"])
        self.stdout.write(f"{filled} products are filled up.")
