"""Which tests begin first."""

from __future__ import annotations

import pytest

__all__ = ["long_ones_first"]

LONG = (
    "tests/docs/test_write_a_backend.py",
    "tests/docs/test_tutorial.py",
    "tests/benchmarks/",
    "tests/celery/test_faults.py",
    "tests/faults/test_proof.py",
    "tests/integration/test_demo",
    "tests/versions/test_races.py",
)
"""What takes half a minute and more: begun last it would be waited for by three idle processes."""


def long_ones_first(items: list[pytest.Item]) -> None:
    """Put what takes long to the front, in whatever order the rest is."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
