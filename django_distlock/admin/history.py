"""The history of forced releases in the admin: to look at, not to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext_lazy as _

from ..core.names import unreadable
from ..core.text import shown
from ..models import ForcedRelease

__all__ = ["ForcedReleaseAdmin"]

if TYPE_CHECKING:
    Base = admin.ModelAdmin[ForcedRelease]
else:  # the class takes no type parameter while the program runs
    Base = admin.ModelAdmin


@admin.register(ForcedRelease)
class ForcedReleaseAdmin(Base):
    """Shows who broke which lock."""

    list_display = ("when", "lock", "by", "reason", "way", "alias", "whose")
    list_display_links = ("lock",)
    list_filter = ("way", "alias")
    search_fields = ("name", "by", "holder", "why")
    fields = ("when", "lock", "by", "reason", "way", "alias", "whose", "token")

    @admin.display(description=_("time"), ordering="at")
    def when(self, row: ForcedRelease) -> str:
        """Return the time to the second, in the time zone of the site."""
        at = localtime(row.at) if is_aware(row.at) else row.at
        return at.isoformat(" ", "seconds")

    @admin.display(description=_("reason"), ordering="why")
    def reason(self, row: ForcedRelease) -> str:
        """Return why it was released, safe to show."""
        return shown(row.why, 500)

    @admin.display(description=_("lock"), ordering="name")
    def lock(self, row: ForcedRelease) -> str:
        """Return the name, safe to show."""
        return shown(unreadable(row.name), 200)

    @admin.display(description=_("holder"), ordering="holder")
    def whose(self, row: ForcedRelease) -> str:
        """Return the holder, safe to show."""
        return shown(unreadable(row.holder), 300)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No user writes history."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No user rewrites it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No user removes it."""
        return False
