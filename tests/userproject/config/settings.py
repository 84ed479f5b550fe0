"""A user's settings: django_distlock is installed, and nothing is said of DISTLOCKS.

USER_DATABASE is the entry of DATABASES, as JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any

DATABASES: dict[str, dict[str, Any]] = {
    "default": {"ATOMIC_REQUESTS": True, **json.loads(os.environ["USER_DATABASE"])}
}
INSTALLED_APPS = ["django_distlock", "bank"]
ROOT_URLCONF = "bank.urls"
SECRET_KEY = "only for tests"
STATIC_URL = "static/"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
