"""The judge of grants tells a token that was given twice from one that may be."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from django_distlock.testing.contention import SeenGrant, judge_contention


def grant(who: int, asked: float) -> SeenGrant:
    """Return a shared grant with the token 7, one second after it was asked for."""
    return SeenGrant(who, "shared", 7, asked, asked + 1.0, ["shared-9-9"])


@pytest.mark.parametrize(
    ("apart", "numbered", "fails"), [(0.5, False, False), (0.5, True, True), (1.5, False, True)]
)
def test_two_of_one_token(apart: float, numbered: bool, fails: bool) -> None:
    seen = [grant(0, 0.0), grant(1, apart)]
    context: Any = pytest.raises(AssertionError, match="twice") if fails else nullcontext()
    with context:
        judge_contention(seen, 0, fencing=True, numbered=numbered)
