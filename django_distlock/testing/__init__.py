"""For the tests of those who use or extend django-distlock.

The kit: `override_locks` keeps the locks in memory, `hold_elsewhere` has another process hold one,
`expire_lease` takes a lease away, `advance_clock` lets time pass, `assert_held` and `assert_free`
say who holds what; functions that ask the store have a twin for async tests, with an ``a`` in
front. `testing.pytest_plugin` has the fixtures. None of it needs pytest.

`testing.contract` is the suite that every backend has to pass; it needs pytest.
"""

from __future__ import annotations

from .asserts import aassert_free, aassert_held, assert_free, assert_held
from .elsewhere import hold_elsewhere
from .expiring import aadvance_clock, advance_clock, aexpire_lease, expire_lease
from .override import override_locks

__all__ = [
    "aadvance_clock",
    "aassert_free",
    "aassert_held",
    "advance_clock",
    "aexpire_lease",
    "assert_free",
    "assert_held",
    "expire_lease",
    "hold_elsewhere",
    "override_locks",
]
