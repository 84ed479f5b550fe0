"""Holders and waiters killed and stopped at random, while servers of a minority come and go."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from django_distlock.backends.redlock import RedlockBackend
from tests.faults import storm
from tests.faults.judging import judge, read
from tests.redlock import NODES
from tests.servers import chosen

SECONDS = float(os.environ.get("DISTLOCK_STORM_SECONDS", "4"))


class TestStorm:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    @pytest.mark.timeout(SECONDS + 120)
    @pytest.mark.parametrize("alias", ["redlock-3", "redlock"])
    def test_a_storm_over_a_flapping_minority(self, alias: str, tmp_path: Path) -> None:
        nodes = NODES[:3] if alias == "redlock-3" else NODES
        words = ["-m", "tests.faults.storm", alias, str(SECONDS), str(tmp_path)]
        chance = random.Random(7)
        away: list[str] = []
        with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as run:
            while run.poll() is None:
                some = chance.sample(nodes, len(nodes) // 2)
                how = chance.choice(["kill", "pause"])
                for node in some:
                    getattr(node, how)()
                time.sleep(0.3)
                for node in some:
                    node.resume()
                    node.start()
                away.append(how)
                time.sleep(0.2)
            told = json.loads(run.stdout.read() if run.stdout else "")
        seen = judge(read(tmp_path / "log"), storm.TTL + RedlockBackend.grace)
        print(f"\n{alias} {told['hits']} {seen}")
        assert seen.faults == []
        assert set(told["codes"]) == {0}
        assert set(told["hits"]) == set(storm.HITS)
        assert seen.grants > 10
        assert len(away) > 3
