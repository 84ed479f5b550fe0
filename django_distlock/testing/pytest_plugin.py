"""The kit as fixtures and a marker of pytest.

Ask for it in the project's topmost ``conftest.py``:

    pytest_plugins = ["django_distlock.testing.pytest_plugin"]

It is not loaded by itself, so a run of pytest that has nothing to do with locks imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .elsewhere import hold_elsewhere as Elsewhere
from .expiring import advance_clock as turn
from .override import override_locks

__all__ = ["advance_clock", "hold_elsewhere", "locks_in_memory"]

MARK = "override_locks"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(using=None, held=(), wait=None, **settings): keep the locks in memory for the "
        "test, as django_distlock.testing.override_locks does",
    )


@pytest.fixture(autouse=True)
def _override_locks_mark(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker(MARK) is not None:
        request.getfixturevalue("locks_in_memory")


@pytest.fixture
def locks_in_memory(request: pytest.FixtureRequest) -> Iterator[override_locks]:
    """Keep the locks in memory for the test: what `override_locks` gives, with the mark's options.

    ``@pytest.mark.override_locks(held={"invoice:42"}, wait=0)`` on a test, a class or a module
    asks for this fixture, too.
    """
    mark = request.node.get_closest_marker(MARK)
    options = {} if mark is None else mark.kwargs
    if mark is not None and mark.args:
        raise TypeError("pytest.mark.override_locks takes options by name only")
    with override_locks(**options) as memory:
        yield memory


@pytest.fixture
def hold_elsewhere(request: pytest.FixtureRequest) -> Iterator[Callable[..., Elsewhere]]:
    """Have another process hold a lock from the call to the end of the test.

    Called as `hold_elsewhere` of the kit; what it returns has ``release()``. For async tests
    whose locks are in a database use the kit's own in an ``async with``.
    """
    for name in ("transactional_db", "db"):  # to be there before, and until after, the locks
        if name in request.fixturenames:
            request.getfixturevalue(name)
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(Elsewhere(*args, **kwargs))


@pytest.fixture
def advance_clock(locks_in_memory: override_locks) -> Callable[..., None]:
    """Let time pass for the locks, which are in memory: `advance_clock` of the kit."""
    return turn
