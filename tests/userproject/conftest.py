"""Asks for the fixtures of the test kit."""

from __future__ import annotations

pytest_plugins = ["django_distlock.testing.pytest_plugin"]
