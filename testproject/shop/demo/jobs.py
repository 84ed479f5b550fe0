"""What the demo tells a worker to do, and how that travels over a pipe."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

GO = "go"

RACE = "race"  # buy until nothing is left
HOLD = "hold"  # take the lock and keep it
CALL = "call"  # take one of the slots, so many times


@dataclass(frozen=True, slots=True)
class Job:
    """One task for a worker; `alias` None means: without a lock."""

    kind: str
    journal: str
    product: int
    lock_name: str
    alias: str | None
    think: float
    ttl: float
    wait: float
    limit: int | None = None
    calls: int = 0

    def dumps(self) -> str:
        """Return the job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, line: str) -> Job:
        """Read the job from one line."""
        return cls(**json.loads(line))
