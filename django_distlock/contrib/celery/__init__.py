"""Locks around Celery's tasks: `locked_task`. Needs the extra ``celery``."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

try:
    import celery as _celery
except ImportError as error:
    raise ImproperlyConfigured(
        'django_distlock.contrib.celery needs Celery: pip install "django-distlock[celery]"'
    ) from error

from .decorator import locked_task

__all__ = ["locked_task"]

del _celery
