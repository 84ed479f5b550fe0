"""Running commands of the example shop, with tables of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testproject.settings import SQLITE

__all__ = ["SMALL", "demo_holds", "environment_of", "program", "ran"]

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--workers", "3", "--stock", "20", "--think", "4")


def environment_of(folder: Path, **store: str) -> dict[str, str]:
    """Return the environment of a shop whose tables are in ``folder``."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DJANGO_"))}
    database = SQLITE | {"NAME": str(folder / "shop.sqlite3")}
    return keep | {"SHOP_DATABASE": json.dumps(database)} | store


def ran(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python to its end, whatever that is."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def program(environment: dict[str, str], *words: str) -> str:
    """Run a program of Python that has to succeed, and return what it printed."""
    done = ran(environment, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def demo_holds(alias: str, folder: Path, **store: str) -> None:
    """Run the demo on an alias: each article is sold once, also when a holder is killed."""
    environment = environment_of(folder, **store)
    program(environment, "manage.py", "migrate", "-v0")
    words = ("manage.py", "demo", "--using", alias, *SMALL, "--json")
    found = json.loads(program(environment, *words))
    runs = {run["alias"]: run for run in found["runs"]}
    assert list(runs) == [None, alias]
    assert (runs[alias]["orders"], runs[alias]["oversold"]) == (20, 0)
    assert [kill["alias"] for kill in found["kills"]] == [alias]
