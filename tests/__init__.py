"""The tests of django-distlock, on real servers that they start themselves."""

from __future__ import annotations

from django_distlock.core import flow

# A machine that stands still for a moment is no failure of the test that this happens to. It is
# set here, before the backends are imported, which take the number over.
flow.MIN_ATTEMPT_TIMEOUT = 2.0
