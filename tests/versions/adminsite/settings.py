"""Settings of a project that edits versioned rows in Django's admin."""

from __future__ import annotations

import copy

from testproject import settings as shop

SECRET_KEY = "only for tests"
INSTALLED_APPS = [*shop.INSTALLED_APPS[:-1], "tests.versions"]
MIDDLEWARE = shop.MIDDLEWARE
TEMPLATES = copy.deepcopy(shop.TEMPLATES)
ROOT_URLCONF = "tests.versions.adminsite.site"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
USE_TZ = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
