"""One run: clients, faults, quiet, and the verdict."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from .checker import Promise, Verdict, Violation, judge
from .history import Call, Log, read
from .nemesis import Clients, Fault, of_clients, rage
from .resource import Resource

__all__ = ["Run", "shortest"]

CLIENTS = 4


class Run:
    """Clients of one alias under faults, for ``seconds``; all that is drawn comes from ``seed``.

    ``within``: what their command is begun with, to have them run in another network. ``said``:
    what an error of theirs has to say, to show that the fault was felt; it goes on until then.
    """

    def __init__(
        self,
        alias: str,
        folder: Path,
        *,
        seed: int,
        seconds: float,
        promise: Promise,
        faults: Sequence[Fault] = (),
        environment: dict[str, str] | None = None,
        within: Sequence[str] = (),
        said: str = "",
    ) -> None:
        self.alias = alias
        self.folder = folder
        self.seed = seed
        self.seconds = seconds
        self.promise = promise
        self.faults = list(faults)
        self.environment = os.environ | (environment or {})
        self.within = list(within)
        self.said = said
        self.chance = random.Random(seed)
        self.log = Log(folder, "nemesis")
        self.kinds: Counter[str] = Counter()

    def carry_out(self, leak: Callable[[], Sequence[str]]) -> Verdict:
        """Let it run, and judge it; ``leak`` says what is left in the store at the end."""
        ttl = self.promise.ttl
        with Resource(self.folder):
            words = [*self.within, sys.executable, "-m", "tests.faults.proof.nursery", self.alias]
            nursery = subprocess.Popen(
                [*words, str(self.folder), str(ttl)],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            with nursery:
                assert nursery.stdin is not None
                assert nursery.stdout is not None
                stdin, stdout = nursery.stdin, nursery.stdout

                def spawn(proc: str, seed: int) -> int:
                    stdin.write(f"{proc} {seed}\n")
                    stdin.flush()
                    return int(stdout.readline())

                clients = Clients(spawn, self.chance)
                for _ in range(CLIENTS):
                    clients.add()
                faults = of_clients(clients, self.alias, ttl, self.log, self.chance)
                try:
                    rage(
                        [*faults, *self.faults],
                        self.seconds,
                        ttl,
                        self.log,
                        self.chance,
                        self._had_effect,
                    )
                finally:
                    (self.folder / "stop").touch()
                    stdin.close()
                ends = json.loads(stdout.readline())
        self._died(ends, set(clients.pids))
        for text in self._left(leak):
            with self.log.call("leak", text):
                pass
        calls = read(self.folder)
        self.kinds = Counter(str(call.facts["kind"]) for call in calls if call.op == "fault")
        verdict = judge(calls, self.promise)
        assert set(self.kinds) == {fault.kind for fault in (*faults, *self.faults)}
        return verdict

    def _had_effect(self) -> bool:
        """Tell whether a lease was lost and a stale write refused: else nothing is shown."""
        calls = read(self.folder)
        ops = {call.op if call.outcome == "ok" else f"{call.op} failed" for call in calls}
        felt = any(self.said in str(call.facts.get("error", "")) for call in calls)
        return felt and {"refuse", "check failed"} <= ops

    def _died(self, ends: dict[str, int], alive: set[str]) -> None:
        for proc in alive:
            if ends[proc] != 0:
                error = self.folder / f"{proc}.error"
                told = error.read_text() if error.exists() else ""
                raise ChildProcessError(f"{proc} ended with {ends[proc]}: {told}")

    def _left(self, leak: Callable[[], Sequence[str]]) -> Sequence[str]:
        """Return what is left once everything that may take a while has been done."""
        patience = time.monotonic() + self.promise.vanished + self.promise.recovery
        while (left := leak()) and time.monotonic() < patience:
            time.sleep(0.1)
        return left

    def told(self, verdict: Verdict) -> str:
        """Return what a failing run prints: the seed, and the shortest part that shows it."""
        shown = shortest(verdict.violations)
        return f"seed {self.seed}, {self.alias}, {dict(self.kinds)}\n{shown}"


def shortest(violations: Sequence[Violation]) -> str:
    """Return the violation that the fewest calls show, and how many there are of each kind."""
    if not violations:
        return "nothing is wrong"
    counts = Counter(violation.kind for violation in violations)
    span: Callable[[Violation], tuple[int, float]] = lambda each: (  # noqa: E731
        len(each.calls),
        max(_end(call) for call in each.calls) - min(call.begin for call in each.calls),
    )
    return f"{dict(counts)}\n{min(violations, key=span)}"


def _end(call: Call) -> float:
    return call.begin if call.end is None else call.end
