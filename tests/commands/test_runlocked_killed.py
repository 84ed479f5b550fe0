"""`manage.py runlocked` killed with SIGKILL: what no program can tell its command of."""

from __future__ import annotations

import os
import signal

from django_distlock import lock
from tests.commands.test_runlocked import STORE
from tests.commands.tools import gone, line, started


def test_the_lock_ends_and_the_command_has_the_older_token(name: str) -> None:
    """It goes on, as of any shell that is killed; its writes can be told from the next holder's."""
    shell = "echo $$; echo $DISTLOCK_FENCING_TOKEN; exec sleep 60"
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "0.9", "--shell")
    with started(*arguments, "--", shell) as running:
        command, token = int(line(running)), int(line(running))
        try:
            running.kill()
            running.wait(60)
            with lock(name, using=STORE, wait=30) as lease:
                assert not gone(command)
                assert lease.fencing_token > token
        finally:
            os.kill(command, signal.SIGKILL)
