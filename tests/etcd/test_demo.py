"""`manage.py demo --using etcd`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testproject.settings import SQLITE
from tests.servers import Etcd

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_on_etcd(server: Etcd, tmp_path: Path) -> None:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DJANGO_"))}
    database = SQLITE | {"NAME": str(tmp_path / "shop.sqlite3")}
    environment = keep | {"SHOP_DATABASE": json.dumps(database), "SHOP_ETCD": server.url}

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
    found = json.loads(manage("demo", "--using", "etcd", *small, "--json"))
    runs = {run["alias"]: run for run in found["runs"]}
    assert list(runs) == [None, "etcd"]
    assert (runs["etcd"]["orders"], runs["etcd"]["oversold"]) == (20, 0)
    assert [kill["alias"] for kill in found["kills"]] == ["etcd"]
