"""The clock of leases, which goes on while the machine sleeps."""

from __future__ import annotations

import importlib.util
import time

import pytest

from django_distlock.core import clock


@pytest.mark.parametrize(
    ("missing", "asked"),
    [
        ((), "CLOCK_BOOTTIME"),
        (("CLOCK_BOOTTIME",), "CLOCK_MONOTONIC"),  # macOS
        (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime"), None),  # Windows
    ],
)
def test_the_clock_of_a_system(
    missing: tuple[str, ...], asked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = None if asked is None else getattr(time, asked)
    for each in missing:
        monkeypatch.delattr(time, each)
    spec = importlib.util.spec_from_file_location("clock_of_another_system", clock.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.now() > 0
    if expected is None:
        assert module.now is time.monotonic
    else:
        assert module.now.args == (expected,)
