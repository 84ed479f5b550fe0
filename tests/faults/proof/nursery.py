"""A process in which Django is set up, and which forks the clients.

``python -m tests.faults.proof.nursery ALIAS FOLDER TTL`` reads lines PROC SEED, forks a client for
each, and prints its process id; at the end of its input it waits for all and prints how they ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import django


def main(alias: str, folder: Path, ttl: float) -> None:
    """Fork a client for each line."""
    from tests.faults.proof.client import run

    children: dict[int, str] = {}
    while line := sys.stdin.readline():
        proc, seed = line.split()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run(alias, folder, proc, int(seed), ttl)
                code = 0
            except BaseException:
                (folder / f"{proc}.error").write_text(traceback.format_exc())
                raise
            finally:
                os._exit(code)
        children[pid] = proc
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    ends = {children[pid]: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children}
    sys.stdout.write(json.dumps(ends) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
