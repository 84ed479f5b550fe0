"""A command of which one instance runs; it says what it does, and waits to be told to end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from django_distlock.commands import LockedCommand

STORE = next(alias for alias in settings.DATABASES if alias != "default")


class Command(LockedCommand):
    """Hold the lock until a line is read."""

    lock_name = "nightly:{tenant}"
    lock_options: ClassVar[Mapping[str, Any]] = {"using": STORE, "ttl": 30}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant")

    def handle(self, *args: Any, **options: Any) -> str:
        self.stdout.write(f"{self.lease.name} {self.lease.fencing_token}")
        self.stdout.flush()
        sys.stdin.readline()
        return "done"
