"""Django's settings for the tests: every chosen store is an alias, in one process.

`tests/conftest.py` starts the servers and says where they are in DISTLOCK_TEST_DATABASES, so that
the processes which the tests start find the same ones.
"""

from __future__ import annotations

import json
import os
from typing import Any

DATABASES: dict[str, dict[str, Any]] = json.loads(os.environ["DISTLOCK_TEST_DATABASES"])

TABLE = "django_distlock.backends.table.TableBackend"

DISTLOCKS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
    "locmem": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
    "dummy": {"BACKEND": "django_distlock.backends.dummy.DummyBackend"},
    **{name: {"BACKEND": TABLE, "LOCATION": name} for name in DATABASES if name != "default"},
    # The same tables by the ORM alone, as on databases without SQL text of their own.
    **{
        f"portable-{name}": {
            "BACKEND": TABLE,
            "LOCATION": name,
            "PREFIX": "portable",
            "OPTIONS": {"SQL": "portable"},
        }
        for name in DATABASES
        if name not in ("default", "memory")
    },
}

INSTALLED_APPS = ["django_distlock"]
SECRET_KEY = "only for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGGING = {"version": 1, "disable_existing_loggers": False}
