"""Holders and waiters killed and stopped at random, while servers of a minority come and go."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from django_distlock.backends.redlock import RedlockBackend
from tests.faults.shares import QUORUM_STORMS
from tests.faults.weather import SECONDS, begin, end
from tests.redlock import NODES
from tests.servers import chosen

AWAY, BACK = 0.3, 0.2
TURNS = 2
"""While a server is away all of a small rest have to vote for one: a split vote costs a turn."""


class TestStorm:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    @pytest.mark.timeout(SECONDS + 120)
    @pytest.mark.parametrize("alias", QUORUM_STORMS)
    def test_a_storm_over_a_flapping_minority(self, alias: str, tmp_path: Path) -> None:
        nodes = NODES[:3] if alias == "redlock-3" else NODES
        chance = random.Random(7)
        away: list[str] = []
        with begin(alias, tmp_path) as run:
            while run.poll() is None:
                some = chance.sample(nodes, len(nodes) // 2)
                how = chance.choice(["kill", "pause"])
                for node in some:
                    getattr(node, how)()
                time.sleep(AWAY)
                for node in some:
                    node.resume()
                    node.start()
                away.append(how)
                time.sleep(BACK)
            # On a busy machine one of the small rest may be late too: a fault's worth of answers.
            grace = RedlockBackend.grace + TURNS * (AWAY + BACK)
            end(run, tmp_path, grace, unreached=len(away))
        assert len(away) > 1
