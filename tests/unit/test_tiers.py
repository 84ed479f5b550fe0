"""The list of long tests: each entry is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiers import LONG, is_long

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
