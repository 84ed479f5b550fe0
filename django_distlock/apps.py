"""The Django app: registers the checks and follows changes of the settings."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _

__all__ = ["DistlockConfig"]


class DistlockConfig(AppConfig):
    """``INSTALLED_APPS = [..., "django_distlock"]``."""

    name = "django_distlock"
    verbose_name = _("Distributed locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks and the history, and read DISTLOCKS again when tests override it."""
        from . import checks, history  # noqa: F401 - register themselves
        from .versions import checks as version_checks  # noqa: F401 - so does this one

        setting_changed.connect(_reset, dispatch_uid="django_distlock")


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == "DISTLOCKS":
        from .handler import locks

        locks.reset()
