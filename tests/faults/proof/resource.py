"""The guarded resource: a counter for each name, which refuses a write with an older token.

It judges as docs/explanation says that a fenced resource has to: a higher token, or the same token
of the same owner. One lock makes the order of its log a fact.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from .history import Log

__all__ = ["Resource", "Writer"]


class Resource:
    """Serves the counters at a socket in ``folder`` until the end of its block."""

    def __init__(self, folder: Path) -> None:
        self._log = Log(folder, "resource")
        self._mutex = threading.Lock()
        self._newest: dict[str, tuple[int, str]] = {}
        self._counts: dict[str, int] = {}
        resource = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(resource.write(**json.loads(line)))

        self._server = socketserver.ThreadingUnixStreamServer(str(folder / "resource"), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def write(self, name: str, token: int, owner: str) -> bytes:
        """Judge one write, and return the answer."""
        with self._mutex:
            newest, whose = self._newest.get(name, (0, ""))
            accepted = token > newest or (token == newest and owner == whose)
            if accepted:
                self._newest[name] = token, owner
                self._counts[name] = self._counts.get(name, 0) + 1
            facts: dict[str, Any] = {"token": token, "owner": owner, "newest": newest}
            with self._log.call("accept" if accepted else "refuse", name, **facts) as note:
                note.say("ok", count=self._counts.get(name, 0))
        return json.dumps(accepted).encode() + b"\n"

    def __enter__(self) -> Resource:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Writer:
    """A client's connection to the resource."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(folder / "resource"))
        self._lines = self._socket.makefile("rb")

    def write(self, name: str, token: int, owner: str) -> bool:
        """Write; return whether it was accepted."""
        line = json.dumps({"name": name, "token": token, "owner": owner})
        self._socket.sendall(line.encode() + b"\n")
        return bool(json.loads(self._lines.readline()))

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()
