"""For the tests of those who use or extend django-distlock.

The kit: `override_locks` keeps the locks in memory, `hold_elsewhere` has somebody else hold one,
`lose` takes a lease away, `turn_clock` lets time pass, `assert_held` and `assert_free` say who
holds what; functions that ask the store have a twin for async tests, with an ``a`` in front.
`testing.pytest_plugin` has the fixtures. None of it needs pytest.

`testing.contract` is the suite that every backend has to pass; it needs pytest.
"""

from __future__ import annotations

from .asserts import aassert_free, aassert_held, assert_free, assert_held
from .clock import aturn_clock, turn_clock
from .elsewhere import hold_elsewhere
from .losing import alose, lose
from .override import override_locks

__all__ = [
    "aassert_free",
    "aassert_held",
    "alose",
    "assert_free",
    "assert_held",
    "aturn_clock",
    "hold_elsewhere",
    "lose",
    "override_locks",
    "turn_clock",
]
