"""A PostgreSQL that passes for a database of which neither Django nor the lock table knows."""

from __future__ import annotations

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Has a vendor for which no expression has SQL of its own, so that all get the standard's."""

    vendor = "unheard"
    display_name = "Unheard"
