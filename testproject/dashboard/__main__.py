"""Start the shop with live traffic over every store that runs here, until Ctrl-C.

    python -m testproject.dashboard [--port 8000] [--stores sqlite redis] [--workers 3]

Prints the address of the Locks page and a login. The databases and servers are its own, and are
gone when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from .stores import KNOWN, environment

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
START_SECONDS = 90.0
END_SECONDS = 10.0


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="8000, or a free one if it is taken")
    parser.add_argument("--stores", nargs="+", choices=KNOWN, default=list(KNOWN))
    parser.add_argument("--workers", type=int, default=3, help="processes of the traffic (3)")
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(_folder()))
            variables = environment(options.stores, folder, stack, _say)
            _serve(options, {**os.environ, **variables}, folder, stack)
    except KeyboardInterrupt:
        pass
    _say("Ended.")
    return 0


def _serve(
    options: argparse.Namespace, variables: dict[str, str], folder: Path, stack: ExitStack
) -> None:
    password = secrets.token_urlsafe(9)
    variables |= {
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DJANGO_SUPERUSER_PASSWORD": password,
    }
    _run(["-m", "testproject.dashboard.prepare"], variables)
    port = options.port or _port()
    log = stack.enter_context((folder / "site.log").open("w"))
    site = ["manage.py", "runserver", "--noreload", "--skip-checks", f"{HOST}:{port}"]
    jobs = [stack.enter_context(_job(site, variables, log.fileno()))]
    _wait(port, jobs[0], folder)
    for number in range(options.workers):
        words = ["-m", "testproject.dashboard.traffic", str(number)]
        jobs.append(stack.enter_context(_job(words, variables, log.fileno())))
    _say(f"\n  http://{HOST}:{port}/admin/django_distlock/heldlock/")
    _say(f"  user admin, password {password}\n\nCtrl-C ends it.")
    end = time.monotonic() + (options.seconds or float("inf"))
    while time.monotonic() < end:
        for job in jobs:
            if job.poll() is not None:
                raise SystemExit(
                    f"A process has ended: {(folder / 'site.log').read_text()[-4000:]}"
                )
        time.sleep(0.2)


def _say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="distlock-dashboard-") as folder:
        yield folder


def _run(words: list[str], variables: dict[str, str]) -> None:
    subprocess.run([sys.executable, *words], cwd=ROOT, env=variables, check=True)


@contextmanager
def _job(
    words: list[str], variables: dict[str, str], log: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process for the time of the block; Ctrl-C in the terminal is for us alone."""
    job = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield job
    finally:
        assert job.stdin is not None
        job.stdin.close()
        job.terminate()
        try:
            job.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _port() -> int:
    for port in (8000, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    raise SystemExit("No free port; name one by --port.")


def _wait(port: int, site: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and site.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1.0):
            return
        time.sleep(0.1)
    raise SystemExit(f"The site does not start:\n{(folder / 'site.log').read_text()[-4000:]}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
