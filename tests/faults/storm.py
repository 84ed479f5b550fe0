"""A storm: processes that take one lock over and over, some of which are killed or stopped.

``python -m tests.faults.storm ALIAS SECONDS FOLDER`` prints a JSON list of how often who was hit.
What the processes saw of the lock they append to ``FOLDER/log``; `tests.faults.judging` reads it.

The parent forks them, so that a new one for each that was killed costs next to nothing. It reads
what they do from shared memory: a process is hit while it holds or while it waits, as it is wanted,
and not as luck would have it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import mmap
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django

from tests.faults.judging import read

PROCESSES = 6
TTL = 0.6
HOLD = 0.04
STOP = (1.4, 1.6)  # seconds that a process stands still, in ttls
MOST_STOPPED = 2  # at a time, so that somebody always waits
PAUSE = (0.05, 0.25)  # seconds between two hits
HITS = ("kill holder", "stop holder", "kill waiter", "stop waiter")
# At least, so that there is something to judge however slow the machine is.
GRANTS = int(os.environ.get("DISTLOCK_STORM_GRANTS", "12"))
PATIENCE = 60.0

STARTING, WAITING, HOLDING, OTHER = b"S", b"W", b"H", b"O"


class Diary:
    """Where a process writes, line by line, what it saw; a killed one has written all before."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "pid": os.getpid(), **facts})
        os.write(self._file, f"{line}\n".encode())


class Guarded:
    """A resource that takes a write only with a token that is not lower than the last one."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "resource", os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)  # the kernel frees it with a killed process
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def write(self, token: int) -> bool:
        """Write, or return False if a newer holder has."""
        with self._alone():
            if token < int(os.pread(self._file, 32, 0) or 0):
                return False
            os.pwrite(self._file, f"{token:032}".encode(), 0)
            return True


def worker(alias: str, folder: Path, tell: Callable[[bytes], None]) -> None:
    """Take the lock, use the resource and free the lock, until there is a file "over"."""
    from django_distlock import LeaseLostError, LockBackendError, LockNotHeldError, lock

    diary, resource = Diary(folder), Guarded(folder)
    guard = lock("storm", using=alias, ttl=TTL, wait=PATIENCE)
    while not (folder / "over").exists():
        tell(WAITING)
        try:
            lease = guard.acquire()
        except LockBackendError as error:
            diary.write("unreached", error=repr(error))
            continue
        if lease is None:
            raise TimeoutError(f"nobody freed the lock in {PATIENCE} s")
        token = lease.fencing_token
        end = time.monotonic() + random.uniform(0, 2 * HOLD)
        lost = False
        while True:
            # Looked at first: what is checked later was true then, too, however long we were
            # stopped in between.
            now = time.monotonic()
            try:
                lease.check()
            except LeaseLostError:
                lost = True
            else:
                diary.write("sure", token=token, at=now)
                tell(HOLDING)
            # As who does not check would: the resource is what stops him.
            if not resource.write(token):
                diary.write("refused", token=token, sure=lease.remaining() > 0)
            if now >= end or lost:
                break
            time.sleep(0.003)
        tell(OTHER)
        try:
            lease.release()
        except LockNotHeldError as error:  # LeaseLostError is one
            diary.write("lost", token=token, error=type(error).__name__)
        except LockBackendError as error:
            diary.write("unreached", error=repr(error))
        else:
            diary.write("released", token=token, lost=lost)


class Seer:
    """A process that looks at the lock table for the parent, which must not be connected itself."""

    def __init__(self, alias: str) -> None:
        from django_distlock import locks

        ask, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(ask)
            os.close(answer)
            return
        os.close(self._ask)  # so that it ends with the parent
        try:
            while os.read(ask, 1):
                info = locks[alias].inspect("storm")
                holder = info.holder.pid if info else 0
                os.write(answer, f"{holder:20}".encode())
        finally:
            os._exit(0)

    def holder(self) -> int:
        """Return the process that holds the lock, or 0."""
        os.write(self._ask, b"?")
        return int(os.read(self._answer, 20))

    def end(self) -> None:
        os.close(self._ask)
        os.waitpid(self.pid, 0)


class Storm:
    """The processes, and who of them is hit next."""

    def __init__(self, alias: str, folder: Path) -> None:
        self.alias = alias
        self.folder = folder
        self.diary = Diary(folder)
        self.seer = Seer(alias)
        self.states = mmap.mmap(-1, 100_000)
        self.places: dict[int, int] = {}  # of each process in there
        self.stopped: dict[int, float] = {}  # until when
        self.born = 0
        self.hits: Counter[str] = Counter()
        self.late = 0.0  # by how much the machine has woken us too late, at most
        self.stood_still = 0.0  # for how long the store has not answered, at most

    def fork(self) -> None:
        """Start one more process."""
        place = self.born = self.born + 1

        def tell(state: bytes) -> None:
            self.states[place : place + 1] = state

        tell(STARTING)
        if pid := os.fork():
            self.places[pid] = place
            return
        code = 1
        try:
            worker(self.alias, self.folder, tell)
            code = 0
        except BaseException as error:
            Diary(self.folder).write("died", error=repr(error))
            raise
        finally:
            os._exit(code)

    def state(self, pid: int) -> bytes:
        return self.states[self.places[pid] : self.places[pid] + 1]

    def hit(self, what: str) -> bool:
        """Hit one that holds, or one that waits; False if there is none just now."""
        deed, _, whom = what.partition(" ")
        wanted = HOLDING if whom == "holder" else WAITING
        awake = [pid for pid in self.places if pid not in self.stopped]
        random.shuffle(awake)
        for pid in awake:
            if self.state(pid) != wanted:
                continue
            os.kill(pid, signal.SIGSTOP)
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                raise ChildProcessError(f"{pid} has died by itself: see the log")
            if self.state(pid) == wanted:  # which it cannot change any more
                break
            os.kill(pid, signal.SIGCONT)
        else:
            return False
        self.hits[what] += 1
        time.sleep(0.003)  # what it has sent is carried out
        asked = time.monotonic()
        holder = self.seer.holder()
        self.stood_still = max(self.stood_still, time.monotonic() - asked)
        if holder == pid:
            # Also one that was granted the lock and had not yet the time to write so.
            self.diary.write("held", of=pid, at=time.monotonic())
        elif whom == "waiter":
            self.diary.write("struck", of=pid, at=time.monotonic())
        if deed == "stop":
            self.stopped[pid] = time.monotonic() + TTL * random.uniform(*STOP)
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del self.places[pid]
            self.fork()
        return True

    def wake(self, *, everybody: bool = False) -> None:
        """Let go on who has stood still for long enough."""
        for pid, until in list(self.stopped.items()):
            if everybody or time.monotonic() >= until:
                del self.stopped[pid]
                if self.state(pid) == HOLDING:  # it held, and has not yet seen that this is over
                    self.states[self.places[pid] : self.places[pid] + 1] = OTHER
                os.kill(pid, signal.SIGCONT)

    def rage(self, seconds: float) -> None:
        """Hit one after the other, for so many seconds, and until there is enough to judge."""
        for _ in range(PROCESSES):
            self.fork()
        end = time.monotonic() + seconds
        turns = itertools.cycle(HITS)
        while time.monotonic() < end or len(self.hits) < len(HITS) or self.grants() < GRANTS:
            what = next(turns)
            last = time.monotonic() + PATIENCE
            while len(self.stopped) >= MOST_STOPPED or not self.hit(what):
                if time.monotonic() > last:
                    raise TimeoutError(f"nobody to {what} in {PATIENCE} s: {self.hits}")
                time.sleep(0.002)
                self.wake()
            pause = time.monotonic() + random.uniform(*PAUSE)
            while (now := time.monotonic()) < pause:
                time.sleep(0.005)
                self.late = max(self.late, time.monotonic() - now - 0.005)
                self.wake()

    def grants(self) -> int:
        """Return how many grants the log tells of by now."""
        return len({line["token"] for line in read(self.folder / "log") if "token" in line})

    def calm(self) -> list[int]:
        """Have all end by themselves, and return their exit codes."""
        self.wake(everybody=True)
        (self.folder / "over").touch()
        codes = []
        for pid in self.places:
            _, status = os.waitpid(pid, 0)
            codes.append(os.waitstatus_to_exitcode(status))
        self.seer.end()
        return codes

    def end(self) -> None:
        """Kill those that are still there."""
        for pid in (self.seer.pid, *self.places):
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)


def main(alias: str, seconds: float, folder: Path) -> None:
    """Let it storm, and print what happened."""
    storm = Storm(alias, folder)
    try:
        storm.rage(seconds)
        codes = storm.calm()
    except BaseException:
        storm.end()
        raise
    times = {"late": storm.late, "stood_still": storm.stood_still}
    sys.stdout.write(json.dumps({"hits": storm.hits, "codes": codes, **times}))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
