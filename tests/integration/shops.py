"""A shop on a database of its own, used from outside as its developer uses it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hearing import hearing_signals

__all__ = ["MORE", "Shop"]

ROOT = Path(__file__).resolve().parents[2]
MARK = "SHOP_TEST_MARK"
MORE = {
    "off": {"BACKEND": "django_distlock.backends.dummy.DummyBackend"},
    "memory": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
}
DATA_AND_LOCKS = """
import django, json
django.setup()
from django.core import serializers
from django_distlock import locks
from testproject.shop.models import Order, Product
rows = serializers.serialize("json", [*Product.objects.order_by("pk"), *Order.objects.all()])
held = [info.name for info in locks["default"].held()]
print(json.dumps({"rows": json.loads(rows), "held": held}))
"""
ONE_SALE = """
import django
django.setup()
from testproject.shop.models import Order, Product
Order.objects.create(product=Product.objects.create(name="Lamp", price=5, stock=3), buyer="Ada")
"""


@dataclass
class Shop:
    """A shop on a database of its own, used from outside."""

    database: dict[str, Any]

    def __post_init__(self) -> None:
        self.mark = uuid.uuid4().hex
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DJANGO_"))}
        self.env = keep | {
            MARK: self.mark,
            "SHOP_DATABASE": json.dumps(self.database),
            "SHOP_DISTLOCKS": json.dumps(MORE),
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
        }

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start Python in the project folder."""
        with hearing_signals():
            return subprocess.Popen(
                [sys.executable, *words],
                env=self.env,
                cwd=ROOT,
                text=True,
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
            )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the project folder to its end."""
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=100)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the shop to its end."""
        return self.run("manage.py", *words)

    def migrated(self) -> Shop:
        """Make the tables, and a product with an order that are the developer's own."""
        for words in (("manage.py", "migrate", "-v0"), ("-c", ONE_SALE)):
            done = self.run(*words)
            assert done.returncode == 0, done.stderr
        return self

    def state(self) -> dict[str, Any]:
        """Return all rows of the shop, and the names of the locks that are held."""
        done = self.run("-c", DATA_AND_LOCKS)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def is_held(self) -> bool:
        """Tell whether SQLite's table has a held lock; at once: `state` starts a program."""
        with closing(sqlite3.connect(self.database["NAME"])) as connection:
            [(count,)] = connection.execute(
                "SELECT count(*) FROM distlock_lock WHERE expires > ?", [time.time_ns() // 1000]
            )
        return bool(count)

    def processes(self) -> int:
        """Count the living processes that this shop's commands have started."""
        mark = f"{MARK}={self.mark}".encode()
        return sum(mark in _environment(entry) for entry in Path("/proc").glob("[0-9]*"))

    def wait_for_no_processes(self, seconds: float = 60) -> int:
        """Wait until those processes have ended, and return how many have not."""
        deadline = time.monotonic() + seconds
        while (count := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return count


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()  # empty for one that has ended
    except OSError:
        return b""
