"""The defects of `tests/planted` can be planted: the code that they spoil is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planted.defects import Defect, defects

ROOT = Path(__file__).resolve().parents[2]
ALL = defects()
OWN = re.compile(r"\bself\.\w+")


def test_there_are_many() -> None:
    assert len(ALL) >= 30
    assert len({each.what for each in ALL}) == len(ALL)


@pytest.mark.parametrize("defect", ALL, ids=lambda each: each.what)
def test_the_code_is_there_once(defect: Defect) -> None:
    code = (ROOT / defect.file).read_text()
    assert code.count(defect.old) == 1
    assert defect.old != defect.new
    # Else any test fails, which shows nothing: of a name that the code does not know (any more).
    assert set(OWN.findall(defect.new)) <= set(OWN.findall(code))
    if defect.file.endswith(".py"):
        compile(code.replace(defect.old, defect.new), defect.file, "exec")
    paths = [each for each in defect.tests if each.startswith("tests/")]
    assert paths
    assert all((ROOT / each).exists() for each in paths)
