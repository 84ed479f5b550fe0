"""A project with the admin; `test_admin` runs its tests in a process of their own."""

from __future__ import annotations
