"""Reports: one for each day."""

from __future__ import annotations

from django.db import models


class Report(models.Model):
    """The report of a day, and which process has written it."""

    day = models.DateField()
    written_by = models.IntegerField()
    written_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"Report of {self.day}"
