"""Run one server, and end it when the process that asked for it is gone.

Usage: ``watcher.py OWNER UID GID SIGNAL FOLDER COMMAND...``

A test process that is killed with -9 cannot tidy up. The kernel's own answer (``PR_SET_PDEATHSIG``)
fires when the *thread* that started the child ends, is lost when the child changes its user, and
leaves the folder. So each server gets this small process between: it sleeps on two process
descriptors, the owner's and the server's. When the owner ends first, it stops the server and
deletes the folder; when the server ends first, it ends too.

It is run as a file and needs only the standard library, without site-packages.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 5.0


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def look(pid: int) -> tuple[str, int] | None:
    """Return a process' state and parent, or None when it is gone (a zombie is gone)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else (state, int(parent))


def lives(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process lives; in a fork of the one that started it, too."""
    if process.returncode is None and look(process.pid):
        return True
    process.poll()  # only to reap it: of what is no child of ours it says that it has ended
    return False


def family(root: int) -> dict[int, str]:
    """Return the process ``root`` and all its descendants, parents first, each with its state."""
    known = {
        pid: facts
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        if (facts := look(pid))
    }
    found = [root] if root in known else []
    for member in found:  # grows while it is read
        found += [pid for pid, (_, parent) in known.items() if parent == member]
    return {pid: known[pid][0] for pid in found}


def freeze(root: int) -> list[int]:
    """Stop (SIGSTOP) a process and its descendants, also those born meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        members = family(root)
        awake = [pid for pid, state in members.items() if state not in "Tt"]
        if not awake:
            return list(members)
        for pid in awake:
            send(pid, signal.SIGSTOP)
        time.sleep(0.001)
    raise TimeoutError(f"process {root} and its children did not stop within {PATIENCE} s")


def kill(root: int) -> None:
    """Kill a process and its descendants and wait until they are gone."""
    members = freeze(root)  # so that none is born while the others are killed
    for pid in members:
        send(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while any(look(pid) for pid in members):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {root} and its children did not die in {PATIENCE} s")
        time.sleep(0.001)


def end(child: subprocess.Popen[bytes], stop_signal: int) -> None:
    """Stop the server the polite way, then by force."""
    for pid in family(child.pid):
        send(pid, signal.SIGCONT)
    child.send_signal(stop_signal)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        kill(child.pid)
        child.wait(PATIENCE)


def main(arguments: list[str]) -> None:
    """Start the command and wait for its end or the owner's, whichever comes first."""
    owner, uid, gid, stop_signal = map(int, arguments[:4])
    folder, *command = arguments[4:]
    watched = os.pidfd_open(owner)
    if os.getppid() != owner:  # gone before the descriptor was open: the number may be another's
        return
    # A user's soft limit is often 1,024 open files, with which Consul does not start.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd=folder,
        user=uid if uid >= 0 else None,
        group=gid if uid >= 0 else None,
        extra_groups=[] if uid >= 0 else None,
    )
    running = os.pidfd_open(child.pid)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(running, select.POLLIN)
    if running not in [descriptor for descriptor, _ in poll.poll()]:
        end(child, stop_signal)
        shutil.rmtree(folder, ignore_errors=True)
    child.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
