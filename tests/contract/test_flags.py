"""The suite itself: flags hide nothing, and what its docstrings promise is true."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from django_distlock.backends.base import BaseLockBackend
from django_distlock.testing import contract
from django_distlock.testing.contract import LockBackendContract
from django_distlock.testing.contract.parts import (
    Fencing,
    Flags,
    Inputs,
    Leftovers,
    Visible,
    Waiting,
)
from django_distlock.testing.runners import SyncRunner
from tests.contract import test_contract
from tests.contract.queueing import HidingBackend, QueueingBackend, TokenlessBackend, opened

SUITES = {
    name: suite
    for name, suite in vars(test_contract).items()
    if name.startswith("Test") and issubclass(suite, LockBackendContract)
}
BOTH = LockBackendContract.applicable()
FLAGS = [name for name, value in vars(BaseLockBackend).items() if isinstance(value, bool)]


class TestQueueing(Waiting, Leftovers, Visible, Fencing, Inputs, Flags):
    """The tests that need flags which no backend of this package has yet."""

    alias = "queueing"
    own_processes = False

    @classmethod
    def backend(cls) -> BaseLockBackend:
        return opened(cls.alias, QueueingBackend)

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        twin = super().twin(alias, prefix)
        twin.__dict__["_space"] = self.backend().__dict__["_space"]
        return twin


class TestTokenless(LockBackendContract):
    """A backend without fencing tokens: all the rest of the suite holds of it."""

    alias = "tokenless"
    own_processes = False

    @classmethod
    def backend(cls) -> BaseLockBackend:
        return opened(cls.alias, TokenlessBackend)

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        backend = self.backend()
        return type(backend)(alias, replace(backend.conf, prefix=prefix, location=self.alias))


class TestHiding(TestTokenless):
    """A backend that does not show its holders, nor frees what they hold."""

    alias = "hiding"

    @classmethod
    def backend(cls) -> BaseLockBackend:
        return opened(cls.alias, HidingBackend)


def test_every_flag_is_tested_when_it_is_false() -> None:
    lacked = {getattr(getattr(LockBackendContract, name), "lacks", None) for name in BOTH}
    assert set(FLAGS) <= lacked


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_what_a_flag_rules_out_is_not_collected(suite: type[LockBackendContract]) -> None:
    backend = suite.backend()
    for name in BOTH:
        test = getattr(LockBackendContract, name)
        kept = getattr(suite, name) is not None
        needed = [flag for flag in getattr(test, "needs", ("exclusive",)) if flag in FLAGS]
        lacked = getattr(test, "lacks", None)
        ruled_out = not all(getattr(backend, flag) for flag in needed)
        if ruled_out or (lacked is not None and getattr(backend, lacked)):
            assert not kept, name
        elif len(needed) == len(getattr(test, "needs", ("exclusive",))):
            assert kept, name


def test_backends_that_are_not_fair_are_not_held_to_it() -> None:
    for suite in SUITES.values():
        held_to_it = "test_waiters_are_served_in_order" in suite.applicable()
        assert held_to_it is suite.backend().fair
    assert "test_waiters_are_served_in_order" in TestQueueing.applicable()


def test_a_backend_that_excludes_nobody_runs_what_is_left() -> None:
    left = set(SUITES["TestDummy"].applicable())
    assert {"test_it_excludes_nobody", "test_releasing_twice_is_an_error"} <= left
    assert not {"test_a_held_lock_is_refused", "test_the_watchdog_renews"} & left
    whole = set(SUITES["TestLocMem"].applicable())
    assert "test_a_held_lock_is_refused" in whole
    assert not {"test_a_killed_process_frees", "test_it_excludes_nobody"} & whole


def test_the_example_of_the_docstring_runs(tmp_path: Path) -> None:
    lines = (contract.__doc__ or "").splitlines()
    example = "\n".join(line for line in lines if line.startswith("    ") or not line)
    (tmp_path / "test_mine.py").write_text(textwrap.dedent(example))
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(
            """
            import django
            from django.conf import settings

            mine = {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"}
            settings.configure(INSTALLED_APPS=["django_distlock"], DISTLOCKS={"mine": mine})
            django.setup()
            """
        )
    )
    some = "exactly_one or bad_input or closed_flow"
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", some, "."],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(Path(contract.__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "\n8 passed" in done.stdout  # four tests, in both modes


def test_pytest_is_asked_for_by_its_extra() -> None:
    program = "import sys; sys.modules['pytest'] = None; import django_distlock.testing.contract"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert 'pip install "django-distlock[contract]"' in done.stderr


def test_a_store_whose_holders_other_processes_do_not_see_fails() -> None:
    class Hiding(LockBackendContract):
        """Says that it excludes other processes, and shows each only its own."""

        alias = "locmem"

        @classmethod
        def has(cls, flag: str) -> bool:
            return flag == "processes" or super().has(flag)

    test: Any = Hiding().test_another_process_sees_and_breaks_it
    with pytest.raises(AssertionError):
        test(runner=SyncRunner("locmem"))
