"""A network of their own for the clients, whose only way to the stores may lose packets."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

__all__ = ["Link", "NoLinkError"]

LOSE = "4,32 0 0 4294963256,53 0 1 {least},6 0 0 2,6 0 0 0"
"""For the kernel's packet filter: load a random number; drop, or let through, what is below."""


class NoLinkError(Exception):
    """This system lets us make no network; the text is what it said."""


class Link:
    """A namespace for the clients and a pair of interfaces: theirs, and one at ``host`` here."""

    def __init__(self) -> None:
        number = os.getpid()
        net = f"10.213.{number >> 6 & 255}"
        self._space = f"distlock{number}"
        self._ends = f"dl{number}h", f"dl{number}c"
        self.host, self._client = (f"{net}.{(number & 63) * 4 + end}" for end in (1, 2))
        self.within = ["ip", "netns", "exec", self._space]
        """What a command is begun with that is to run over there."""

    def __enter__(self) -> Self:
        if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
            raise NoLinkError("only root makes networks, with iproute2")
        here, there = self._ends
        self._run("ip", "netns", "add", self._space)
        try:
            words = ("ip", "link", "add", here, "type", "veth", "peer", "name", there)
            self._run(*words, "netns", self._space)
            self._run("ip", "addr", "add", f"{self.host}/30", "dev", here)
            self._there("ip", "addr", "add", f"{self._client}/30", "dev", there)
            self._there("ip", "link", "set", "lo", "up")
            self._run("tc", "qdisc", "add", "dev", here, "clsact")
            self._there("tc", "qdisc", "add", "dev", there, "clsact")
            self.lose(0.5)  # else it is not known to work
            self.mend()
        except NoLinkError:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def lose(self, part: float) -> None:
        """Lose so large a part of all packets, in both directions."""
        rule = LOSE.format(least=int(part * 2**32))
        here, there = self._ends
        words = ("egress", "bpf", "da", "bytecode", rule)
        self._run("tc", "filter", "add", "dev", here, *words)
        self._there("tc", "filter", "add", "dev", there, *words)

    def cut(self) -> None:
        """Let nothing through, and tell nobody."""
        self._run("ip", "link", "set", self._ends[0], "down")

    def mend(self) -> None:
        """Let everything through."""
        here, there = self._ends
        self._run("tc", "filter", "del", "dev", here, "egress")
        self._there("tc", "filter", "del", "dev", there, "egress")
        self._run("ip", "link", "set", here, "up")
        self._there("ip", "link", "set", there, "up")

    def _there(self, *words: str) -> None:
        self._run(*self.within, *words)

    def _run(self, *words: str) -> None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoLinkError(f"{' '.join(words)}: {done.stderr.strip()}")

    def _remove(self) -> None:
        self._run("ip", "netns", "del", self._space)  # its interfaces go with it
