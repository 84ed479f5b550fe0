"""How long a store may take for an answer in the tests: longer than a machine stands still."""

from __future__ import annotations

from django_distlock.core import flow

__all__ = ["ANSWERED"]

ANSWERED = 2.0
"""Seconds; before the backends of stores are imported, which take the number over."""

flow.MIN_ATTEMPT_TIMEOUT = ANSWERED
