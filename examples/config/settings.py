"""Settings of the examples: a Django project as many teams have one.

``EXAMPLES_DATABASE`` is a ``DATABASES`` entry as JSON, used in place of the SQLite file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "only-for-the-examples-on-your-own-machine"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]

INSTALLED_APPS = ["django_distlock", "reports", "webhooks", "partners"]
ROOT_URLCONF = "config.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES: dict[str, dict[str, Any]] = {
    "default": json.loads(os.environ.get("EXAMPLES_DATABASE", "{}"))
    or {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(BASE_DIR / "examples.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"},
    }
}

DISTLOCKS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django_distlock.backends.table.TableBackend", "TTL": 10},
}
