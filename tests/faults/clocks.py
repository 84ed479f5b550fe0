"""Servers whose clock can be turned, by libfaketime: theirs alone, and never the machine's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from tests.servers import DATABASES, DatabaseServer, ServerError

HOUR = 3600

FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
"""Where libfaketime is looked for, and in the folder of the architecture there."""


class ClockedServer(DatabaseServer):
    """A database server with a clock of its own."""

    def turn(self, seconds: float) -> None:
        """Set the server's clock to the right time and so many ``seconds``, at once."""
        raise NotImplementedError


def library() -> str:
    """Return the path of libfaketime for programs with threads, or say what to install."""
    for folder in FOLDERS:
        for pattern in ("faketime/libfaketimeMT.so.1", "*/faketime/libfaketimeMT.so.1"):
            for found in sorted(Path(folder).glob(pattern)):
                return str(found)
    raise ServerError("libfaketime not found. Install it: apt-get install libfaketime")


def clocked(store: str) -> ClockedServer:
    """Return a server of ``store``, not yet started, that has a clock of its own."""
    kind: Any = DATABASES[store]

    class Clocked(kind):  # type: ignore[misc]  # is a ClockedServer
        def command(self) -> list[str]:
            # Only the server itself: what it calls monotonic, for waits, goes right.
            words = {
                "LD_PRELOAD": library(),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
            command: list[str] = super().command()
            return ["env", *(f"{key}={value}" for key, value in words.items()), *command]

        @property
        def clock(self) -> Path:
            return Path(self.folder) / "clock"

        def prepare(self) -> None:
            self.turn(0)
            super().prepare()

        def turn(self, seconds: float) -> None:
            self.write("clock.new", f"{seconds:+}s\n")
            os.replace(self.folder / "clock.new", self.clock)

    return cast("ClockedServer", Clocked())
