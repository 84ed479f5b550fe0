"""The contract suite by actors that come late: no test needs a machine that goes straight on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from django_distlock.testing.runners import Actor, TaskActor, ThreadActor
from tests.contract.test_contract import TestLocMem as _OnLocMem

LATE = 0.15  # seconds between the steps of a test


class TestLate(_OnLocMem):
    """In memory, where a step takes no time; leases that are meant to run out do so in between."""

    short = brief = 0.1

    @pytest.fixture(autouse=True)
    def _late(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for kind in (ThreadActor, TaskActor):
            monkeypatch.setattr(kind, "run", _late(kind.run))


def _late(run: Callable[[Any, Any], Any]) -> Callable[[Actor, Any], Any]:
    """Return what carries a step out, after a pause."""

    async def late(actor: Actor, work: Any) -> Any:
        await asyncio.sleep(LATE)
        return await run(actor, work)

    return late
