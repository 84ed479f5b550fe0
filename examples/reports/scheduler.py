"""The scheduler: a process on every host, of which one works, the leader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import date

from django_distlock import Lease, leader

from .models import Report


@leader("nightly reports", ttl=2)
def schedule(lease: Lease, days: Iterator[date], pause: Callable[[], None]) -> str:
    """Write the report of each day that has none, for as long as this process leads."""
    for day in days:
        lease.check()  # raises LeaseLostError: another process leads, and this one campaigns again
        if not Report.objects.filter(day=day).exists():
            Report.objects.create(day=day, written_by=os.getpid())
        pause()
    return "no day is left"
