"""What each of many forked processes would import is imported once, and nothing is left open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import threading

from benchmarks.adapter import Adapter
from benchmarks.preload import preload
from benchmarks.processes import in_child


class Late(Adapter):
    name, kind = "late", "alternative"

    def open(self):
        import colorsys

        sys.modules["no.module.of.its.own"] = colorsys
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    def close(self):
        pass

    def acquire(self, key):
        return key

    def release(self, handle):
        import chunk_of_ours


class Broken(Late):
    def open(self):
        raise RuntimeError("not to be had")


def more(pipe):
    before = set(sys.modules)
    Late("sqlite").open()
    Late("sqlite").warm_up()
    return sorted(set(sys.modules) - before)


preload([Broken("sqlite"), Late("sqlite")])
print("colorsys" in sys.modules, "chunk_of_ours" in sys.modules, threading.active_count())
print(in_child(more))
"""


def test_what_adapters_import_when_they_are_used_is_imported_once(tmp_path: Path) -> None:
    """Their threads and connections are made in a process that is gone by then."""
    (tmp_path / "chunk_of_ours.py").touch()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True 1", "['no.module.of.its.own']"]
