"""`manage.py demo` on Consul."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testproject.settings import SQLITE
from tests.servers import Consul

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_on_consul(server: Consul, tmp_path: Path) -> None:
    """Sell each article once, and go on when a holder is killed."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DJANGO_"))}
    database = SQLITE | {"NAME": str(tmp_path / "shop.sqlite3")}
    environment = keep | {"SHOP_DATABASE": json.dumps(database), "SHOP_CONSUL": server.url}

    def manage(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    manage("migrate", "-v0")
    small = ("--workers", "3", "--stock", "20", "--think", "4")
    found = json.loads(manage("demo", "--using", "consul", *small, "--json"))
    runs = {run["alias"]: run for run in found["runs"]}
    assert list(runs) == [None, "consul"]
    assert (runs["consul"]["orders"], runs["consul"]["oversold"]) == (20, 0)
    assert [kill["alias"] for kill in found["kills"]] == ["consul"]
