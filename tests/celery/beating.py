"""A beat of one of several hosts: all send the same tasks at the same times."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any

from celery.schedules import BaseSchedule, schedstate

from tests.celery.app import app
from tests.celery.tasks import ALIASES

PERIOD = 2.0


class Aligned(BaseSchedule):
    """Every `PERIOD` seconds by the clock on the wall, as a crontab is, which knows minutes."""

    def is_due(self, last_run_at: datetime) -> Any:
        """Tell whether a period has begun since, and when the next one does."""
        now = time.time()
        due = now // PERIOD > last_run_at.timestamp() // PERIOD
        return schedstate(due, PERIOD - now % PERIOD + 0.01)


app.conf.beat_schedule = {
    f"{using}": {
        "task": f"{using}.beaten",
        "schedule": Aligned(),
        "args": (f"{os.environ['DISTLOCK_TEST_TAG']}-{using}", os.environ["DISTLOCK_TEST_HOST"]),
        "options": {"queue": "prefork"},
    }
    for using in ALIASES
}
