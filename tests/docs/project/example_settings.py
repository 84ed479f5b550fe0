"""A project like a reader's: one SQLite file, a second one for locks, a small shop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path.cwd()

SQLITE: dict[str, Any] = {
    "ENGINE": "django.db.backends.sqlite3",
    "OPTIONS": {
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        "transaction_mode": "IMMEDIATE",
    },
}
DATABASES = {
    "default": SQLITE | {"NAME": HERE / "db.sqlite3"},
    "locks": SQLITE | {"NAME": HERE / "locks.sqlite3"},
}
INSTALLED_APPS = ["django_distlock", "shop"]
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["testserver"]
SECRET_KEY = "only for the examples"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGGING = {"version": 1, "disable_existing_loggers": False}
# There are no users here: django.contrib.auth is not installed.
REST_FRAMEWORK: dict[str, Any] = {
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_AUTHENTICATION_CLASSES": [],
}
