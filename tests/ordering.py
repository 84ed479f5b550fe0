"""Which tests begin first."""

from __future__ import annotations

import pytest

__all__ = ["long_ones_first"]

LONG = (
    "tests/docs/test_write_a_backend.py",
    "tests/docs/test_tutorial.py",
    "tests/benchmarks/",
    "tests/celery/test_faults.py",
    "tests/faults/test_interrupts.py",
    "tests/faults/test_proof.py",
    "tests/fencing/test_races.py::test_of_ten_thousand",
    "tests/integration/test_demo",
    "tests/versions/test_races.py",
)
"""What takes about half a minute or more: begun last it would be waited for by idle processes."""


def long_ones_first(items: list[pytest.Item]) -> None:
    """Put what takes long to the front, in whatever order the rest is."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
