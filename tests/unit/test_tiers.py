"""The list of long tests: each entry is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiers import LONG, VARIANTS, in_tier, is_long, lacks

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("entry", LONG)
def test_what_is_long_is_there(entry: str) -> None:
    """A test that was renamed would be in the short tier from then on."""
    file, _, name = entry.partition("::")
    place = ROOT / file
    assert place.exists() or list(place.parent.glob(f"{place.name}*"))
    if name:
        assert name.partition("[")[0] in place.read_text("utf-8")


def test_short_and_long() -> None:
    assert is_long("tests/docs/test_words.py::test_it")
    assert not is_long("tests/unit/test_tiers.py::test_it")
    assert not is_long("tests/unit/test_tiers.py::test_it[mysql]")


def test_files_without_a_test_of_a_tier_are_left_out() -> None:
    assert lacks("tests/unit/test_tiers.py", "long")
    assert not lacks("tests/unit/test_threads.py", "long")
    assert not lacks("tests/unit/", "long")
    assert not lacks("tests/redis/test_waiting.py", "long")
    assert lacks("tests/docs/", "short")
    assert not lacks("tests/unit/test_tiers.py", "short")
    assert not lacks("tests/docs/", "all")


def test_what_is_tested_again_is_long() -> None:
    contract = "tests/contract/test_contract.py::TestRedis::"
    for name in (
        "test_slots_in_processes",
        "test_a_killed_process_frees",
        "test_another_process_it",
    ):
        assert is_long(f"{contract}{name}[async]")
        assert not is_long(f"{contract}{name}[sync]")
    assert not is_long(f"{contract}test_it[async]")
    assert not is_long(f"{contract}test_slots_of_this_process[async]")
    assert is_long("tests/commands/test_locks.py::test_show[mariadb]")
    assert not is_long("tests/commands/test_locks.py::test_show[sqlite]")
    assert not is_long("tests/backends/test_statements.py::test_it[mariadb]")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_has_each_test_in_one_mode(variant: str) -> None:
    """And all of them in the tier of all."""
    sync = 0
    for number in range(100):
        start = f"{variant}::test_{number}"
        modes = [mode for mode in ("sync", "async") if in_tier(f"{start}[3-{mode}]", "long")]
        assert len(modes) == 1
        assert in_tier(f"{start}[{modes[0]}]", "long")
        sync += modes == ["sync"]
        assert not in_tier(f"{start}[sync]", "short")
        assert in_tier(f"{start}[sync]", "all")
        assert in_tier(f"{start}[async]", "all")
        assert in_tier(f"{start}[3]", "long")
    assert 20 < sync < 80
