"""In Django's admin: the Locks page over all aliases, and the history of forced releases."""

from __future__ import annotations

from .history import ForcedReleaseAdmin
from .page import HeldLockAdmin

__all__ = ["ForcedReleaseAdmin", "HeldLockAdmin"]
