"""The site that the browser looks at: the admin, over the stores of this run."""

from __future__ import annotations

import json
import os
from typing import Any

SITE: dict[str, Any] = json.loads(os.environ["DISTLOCK_BROWSER_SITE"])
"""``file`` of its own database, ``DATABASES`` and ``DISTLOCKS`` of the locks, theme and limit."""

THEME: str = SITE.get("theme", "")
LIMIT: float = SITE.get("limit", 2.0)  # seconds that the stores have for their answers
DEBUG: bool = SITE.get("debug", True)  # runserver serves the static files then
SECRET_KEY = "only for tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the quickest one
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
LANGUAGE_CODE = "en"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
ROOT_URLCONF = "tests.browser.site.urls"
DATABASES: dict[str, Any] = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": SITE["file"]},
    **SITE["databases"],
}
DISTLOCKS: dict[str, Any] = SITE["distlocks"]
THEMES = {"": [], "unfold": ["unfold"], "grappelli": ["grappelli"]}
INSTALLED_APPS = [
    *THEMES[THEME],
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_distlock",
]
MIDDLEWARE = [
    "tests.browser.site.csp.strict",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
if THEME:
    MIDDLEWARE = MIDDLEWARE[1:]  # the themes themselves have inline scripts
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
