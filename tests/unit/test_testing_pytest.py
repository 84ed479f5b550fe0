"""The fixtures and the marker of `django_distlock.testing.pytest_plugin`, and a run with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_distlock import LockTimeoutError, lock
from django_distlock.testing import override_locks
from django_distlock.testing.pytest_plugin import (  # noqa: F401 - fixtures
    _override_locks_mark,
    advance_clock,
    hold_elsewhere,
    locks_in_memory,
)

from .graph import ROOT


def test_locks_in_memory(locks_in_memory: override_locks) -> None:  # noqa: F811
    with lock("a"):
        pass
    assert locks_in_memory.taken() == ["a"]


def test_held_elsewhere(hold_elsewhere: Callable[..., Any]) -> None:  # noqa: F811
    first, second = hold_elsewhere("kit:a"), hold_elsewhere("kit:b", using="locmem", ttl=5)
    assert lock("kit:a").locked()
    assert second.fencing_token
    first.release()
    assert not lock("kit:a").locked()


def test_nothing_is_held_after_the_test() -> None:
    assert not lock("kit:b", using="locmem").locked()


def test_the_clock(advance_clock: Callable[..., None]) -> None:  # noqa: F811
    lease = lock("a", ttl=30).acquire()
    assert lease
    advance_clock(31)
    assert lease.lost


PROJECT = """
import asyncio, pytest
from django_distlock import LockTimeoutError, lock

@pytest.mark.override_locks(held={"a"}, wait=0)
class TestMarked:
    def test_held(self):
        with pytest.raises(LockTimeoutError), lock("a"):
            pass

    def test_more(self, locks_in_memory):
        locks_in_memory.release("a")
        with lock("a"):
            pass
        assert locks_in_memory.taken() == ["a"]

    def test_async(self):
        async def main():
            with pytest.raises(LockTimeoutError):
                async with lock("a"):
                    pass
        asyncio.run(main())

def test_held_elsewhere(hold_elsewhere, locks_in_memory):
    hold_elsewhere("b")
    assert lock("b").acquire(wait=0) is None

def test_clock(advance_clock):
    lease = lock("c").acquire()
    advance_clock(3600)
    assert lease.lost

def test_unmarked():
    from django_distlock import locks
    assert type(locks["default"]).__name__ == "DummyBackend"

@pytest.mark.override_locks("a")
def test_wrong():
    pass
"""

CONFTEST = """
import sys
from django.conf import settings
pytest_plugins = ["django_distlock.testing.pytest_plugin"]
DUMMY = "django_distlock.backends.dummy.DummyBackend"

def pytest_configure():
    # The plugin is loaded by now, and has asked for no settings.
    assert "django_distlock.testing.pytest_plugin" in sys.modules
    assert not settings.configured
    settings.configure(DISTLOCKS={"default": {"BACKEND": DUMMY}})
"""


def test_a_run_of_pytest_with_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(PROJECT, encoding="utf-8")
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    words = "-W error -m pytest -q -p no:django -p no:cacheprovider --strict-markers -W error"
    done = subprocess.run(
        [sys.executable, *words.split(), "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env=plain | {"PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "6 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "takes options by name only" in done.stdout


def test_the_kit_needs_neither_pytest_nor_settings() -> None:
    program = (
        "import sys\nimport django_distlock.testing as kit\nfrom django.conf import settings\n"
        "assert all(hasattr(kit, name) for name in kit.__all__)\n"
        "assert 'pytest' not in sys.modules and not settings.configured\n"
        "import threading; assert threading.active_count() == 1\n"
    )
    plain = {key: value for key, value in os.environ.items() if "DJANGO" not in key}
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=plain | {"PYTHONPATH": str(ROOT.parent)},
        check=True,
        timeout=60,
    )


@pytest.mark.usefixtures("locks_in_memory")
def test_a_decorated_test_keeps_its_fixtures() -> None:
    @override_locks(held={"a"}, wait=0)
    def test(value: int) -> int:
        with pytest.raises(LockTimeoutError), lock("a"):
            pass
        return value

    assert test(3) == 3
