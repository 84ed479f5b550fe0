"""An app whose model needs django-concurrency."""

from __future__ import annotations
