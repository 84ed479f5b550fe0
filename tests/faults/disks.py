"""Full disks: the very error of a database server by a trigger, and a real small one for a file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

RAISE = {
    "postgresql": "EXECUTE FUNCTION disk_full()",
    "mariadb": "FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, "
    "MESSAGE_TEXT = 'Disk full (distlock_lock)'",
}
FUNCTION = """
CREATE OR REPLACE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE 'could not extend file "base/1/2": No space left on device' USING ERRCODE = 'disk_full';
END $$"""


@contextmanager
def full(execute: Callable[[str], object], store: str, event: str) -> Iterator[None]:
    """Have each INSERT or UPDATE of the lock table fail for want of room."""
    if store == "postgresql":
        execute(FUNCTION)
    begin = f"CREATE TRIGGER full_disk BEFORE {event} ON distlock_lock {RAISE[store]}"
    execute(begin.replace("EXECUTE", "FOR EACH ROW EXECUTE"))
    try:
        yield
    finally:
        on = " ON distlock_lock" if store == "postgresql" else ""
        execute(f"DROP TRIGGER full_disk{on}")


@contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a small disk in memory for the block; only root may."""
    place = folder / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "distlock", str(place)]
    subprocess.run(words, check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def filled(place: Path) -> Iterator[None]:
    """Leave no room on a disk for the block."""
    filler = place / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass
        yield
    finally:
        filler.unlink()
