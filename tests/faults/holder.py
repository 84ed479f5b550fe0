"""A process that holds a lock and is stopped meanwhile.

``python -m tests.faults.holder ALIAS NAME TTL FOLDER`` prints its token, waits for a line, looks
whether it still holds, writes whatever it saw, and prints how it fares.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import django

from tests.faults.storm import Guarded


def main(alias: str, name: str, ttl: float, folder: Path) -> None:
    """Hold the lock, wait, and print what became of its write, check, renewal and release."""
    from django_distlock import LockError, lock

    lease = lock(name, using=alias, ttl=ttl).acquire()
    assert lease
    sys.stdout.write(f"{lease.fencing_token}\n")
    sys.stdout.flush()
    sys.stdin.readline()

    def outcome(verb: Callable[[], object]) -> str:
        try:
            verb()
        except LockError as error:
            return type(error).__name__
        return "fine"

    found: dict[str, object] = {"before": outcome(lease.check)}
    found["written"] = Guarded(folder).write(lease.fencing_token)  # whatever it has learned
    for verb in (lease.check, lease.renew, lease.release):
        found[verb.__name__] = outcome(verb)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
