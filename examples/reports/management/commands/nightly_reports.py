"""The command that runs on every host."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand

from reports.scheduler import schedule


class Command(BaseCommand):
    """Write nightly reports, on one host of all that run this."""

    help = "Write the report of each day, on one host of all that run this command."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options; a night is short here."""
        parser.add_argument("--first", type=date.fromisoformat, default=date(2026, 1, 1))
        parser.add_argument("--days", type=int, default=30)
        parser.add_argument("--night", type=float, default=0.1, help="seconds between two reports")

    def handle(self, *args: Any, **options: Any) -> None:
        """Campaign, and lead until the days are over, or until the end."""

        def days() -> Iterator[date]:
            for number in range(options["days"]):
                yield options["first"] + timedelta(days=number)

        self.stdout.write(schedule(days=days(), pause=lambda: time.sleep(options["night"])))
