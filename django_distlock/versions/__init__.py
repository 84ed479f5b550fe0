"""Optimistic locking of the application's own rows: a version that every write compares.

Import this from ``models.py`` and later, as anything that defines models. `versions.admin` is for
``admin.py``.
"""

from __future__ import annotations

from .fields import VersionField
from .models import VersionedModel
from .querysets import VersionedManager, VersionedQuerySet
from .retry import retry_on_conflict

__all__ = [
    "VersionField",
    "VersionedManager",
    "VersionedModel",
    "VersionedQuerySet",
    "retry_on_conflict",
]
