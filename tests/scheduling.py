"""The scheduler of pytest-xdist that keeps the tests of a group in one process."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.grouping import group_of

__all__ = ["Grouped", "pytest_xdist_make_scheduler"]


class Grouped(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
    """Hands out tests one by one, and those of a group to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler for ``--dist loadgroup``; None leaves the others to pytest-xdist."""
    return Grouped(config, log) if config.getvalue("dist") == "loadgroup" else None
