"""The admin of versioned models; import it from ``admin.py`` only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from .retry import retry_on_conflict

__all__ = ["VersionedAdmin"]

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:  # a mixin for a ModelAdmin, or for a subclass of it
    Base = object


class VersionedAdmin(Base):
    """Closes the gap between judging a form and saving it: ``class X(VersionedAdmin, ModelAdmin)``.

    A user whose object was changed in that moment sees the form again, with the conflict in it,
    instead of an error page. All else works with a plain ModelAdmin too.
    """

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the form again after a conflict."""
        return retry_on_conflict(2)(super().changeform_view)(request, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list again after a conflict (``list_editable``)."""
        return retry_on_conflict(2)(super().changelist_view)(request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Look again what is to be deleted after a conflict."""
        return retry_on_conflict(2)(super().delete_view)(request, *args, **kwargs)
