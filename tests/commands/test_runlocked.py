"""`manage.py runlocked`, with real processes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from django_distlock import lock, locks
from django_distlock.testing import hold_elsewhere
from tests.backends.tools import STORES, database_alias, elsewhere, lock_alias, soon, unreachable
from tests.commands.tools import (
    COMMAND,
    LIMIT,
    NoTokens,
    Ran,
    catches,
    end,
    gone,
    line,
    rests,
    run,
    started,
)

STORE = STORES[0]

HEAR = """
import os, signal, sys, time
def heard(number, frame):
    # Not print, which may not be called while the print below has not returned.
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    sys.exit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
               signal.SIGUSR2):
    signal.signal(number, heard)
print("ready", flush=True)
for _ in range(600):  # a signal that comes just before a sleep begins is heard after it
    time.sleep(0.1)
"""
"""A program that says which signal it was sent."""

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
"""A program that does not end when asked to."""


SAY_SLOT = ["printenv", "DISTLOCK_SLOT"]


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def is_held(name: str, using: str = STORE) -> bool:
    return locks[using].call("inspect", name) is not None


# -- what is run ---------------------------------------------------------------------------------


def test_under_the_lock_and_with_the_commands_exit_code(store: str, name: str) -> None:
    program = "import sys; print(sys.argv[1:], flush=True); sys.stdin.readline(); sys.exit(3)"
    words = [*python(program), "--using", "x", "--", "$HOME *"]
    with started("runlocked", name, "--using", store, "--", *words) as running:
        # Nothing of it is taken for an option of ours, and no shell has touched it.
        assert line(running) == "['--using', 'x', '--', '$HOME *']"
        assert is_held(name, store)
        assert end(running, "\n") == (3, "", "")
    assert not is_held(name, store)
    assert run("runlocked", name, "--using", store, "--", "true").returncode == 0


def test_what_the_command_finds_in_its_environment(name: str) -> None:
    shell = (
        "printf '%s ' $DISTLOCK_ALIAS $DISTLOCK_FENCING_TOKEN; printf '\\n%s' \"$DISTLOCK_NAME\""
    )
    done = run("runlocked", "--shell", f"{name}\né", "--using", STORE, "--", shell)
    first, second = done.stdout.splitlines()
    assert first.split()[0] == STORE
    assert int(first.split()[1]) > 1_700_000_000_000_000
    assert second == rf"{name}\n\xe9"
    with lock(f"{name}\né", using=STORE) as later:
        assert later.fencing_token > int(first.split()[1])


def test_how_many_may_run_at_once(name: str) -> None:
    limited = lock(name, using=STORE, limit=2)
    with limited as lease:
        done = run("runlocked", name, "--limit", "2", "--using", STORE, "--", *SAY_SLOT)
        assert {int(done.stdout), lease.slot} == {0, 1}
        with lock(f"{name}:other", using=STORE, shared=True):
            shared = ["runlocked", f"{name}:other", "--wait", "0", "--using", STORE]
            assert run(*shared, "--shared", "--", "true").returncode == 0
            assert run(*shared, "--", "true").returncode == 75


def test_a_backend_without_tokens_gives_none(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with lock_alias("other", BACKEND=f"{NoTokens.__module__}.NoTokens"):
        ran = Ran("runlocked", name, "--", "env", using="other")
    assert ran.code == 0
    said = capfd.readouterr().out
    assert "DISTLOCK_ALIAS=other" in said
    assert "FENCING" not in said


def test_no_shell_unless_asked_for(name: str) -> None:
    arguments = ("runlocked", name, "--using", STORE)
    assert run(*arguments, "--", "echo", "$((1+1))", "|", "cat").stdout == "$((1+1)) | cat\n"
    assert run(*arguments, "--shell", "--", "echo", "$((1+1))", "|", "cat").stdout == "2\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["/no/such/program"], 127, "No such file"),
        (["/etc/passwd"], 126, "Permission denied"),
        ([], 1, "Nothing to run: write -- and the command"),
        ([""], 1, "Nothing to run: write -- and the command"),
    ],
)
def test_what_cannot_be_run(name: str, words: list[str], code: int, said: str) -> None:
    done = run("runlocked", name, "--using", STORE, "--", *words)
    assert done.returncode == code
    assert said in done.stderr
    assert not is_held(name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ttl", "0"], "ttl must be between 0.01"),
        (["--ttl", "soon"], "--ttl must be a number of seconds, or"),
        (["--wait", "-1"], "--wait"),
        (["--using", "nowhere"], "DISTLOCKS has no alias 'nowhere'"),
        (["--on-contention", "busy"], "invalid int value"),
    ],
    ids=" ".join,
)
def test_options_out_of_range(name: str, options: list[str], said: str) -> None:
    done = run("runlocked", name, *options, "--", "true")
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_durations_have_units(name: str) -> None:
    with started(
        "runlocked", name, "--using", STORE, "--ttl", "2m", "--", "sleep", "60"
    ) as running:
        assert soon(lambda: is_held(name))
        [info] = locks[STORE].held(name)
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert 60 < (info.expires_at - info.acquired_at).total_seconds() < 121
        running.send_signal(signal.SIGTERM)
        assert end(running)[0] == 128 + signal.SIGTERM


# -- held and down -------------------------------------------------------------------------------


def test_somebody_else_holds_it(store: str, name: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    arguments = ("runlocked", name, "--using", store, "--wait", "0", "-v")
    with hold_elsewhere(name, using=store):
        done = run(*arguments, "1", "--", "touch", str(mark))
        assert (done.returncode, done.stdout) == (75, "")
        assert done.stderr.startswith("AlreadyRunningError: Held by elsewhere pid ")
        done = run(*arguments, "1", "--on-contention", "0", "--", "touch", str(mark))
        assert done.returncode == 0
        assert done.stderr.startswith("AlreadyRunningError: Held by elsewhere pid ")
        done = run(*arguments, "0", "--on-contention", "4", "--", "touch", str(mark))
        assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    assert not mark.exists()


@pytest.mark.parametrize("wait", ["20", "forever"])
def test_it_waits(name: str, wait: str) -> None:
    with hold_elsewhere(name, using=STORE) as holder:
        arguments = ("runlocked", name, "--using", STORE, "--wait", wait)
        with started(*arguments, "--", "echo", "ran") as running:
            assert soon(lambda: catches(running.pid, signal.SIGTERM), LIMIT)
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.3)
            assert running.poll() is None
            holder.release()
            assert end(running) == (0, "ran\n", "")


def test_the_store_is_down(store: str, name: str) -> None:
    with database_alias("down", unreachable(store)), lock_alias("down", LOCATION="down"):
        ran = Ran("runlocked", name, "--", "echo", using="down")
    assert ran.code == 69
    assert ran.failed.startswith("Not run: Lock store error while acquiring: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ended_while_it_waits(store: str, name: str, number: int) -> None:
    with hold_elsewhere(name, using=store) as holder:
        with started("runlocked", name, "--using", store, "--wait", "60", "--", "true") as running:
            assert soon(lambda: catches(running.pid, signal.SIGTERM), LIMIT)
            # Not in the middle of an import, which Python does not leave without a word.
            assert soon(lambda: rests(running.pid), LIMIT)
            running.send_signal(number)
            assert end(running) == (128 + number, "", "")
        # And it has left nothing that stands in the way of others.
        holder.release()
        with lock(name, using=store, wait=5):
            pass


# -- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2
    ],
    ids=lambda number: number.name,
)  # fmt: skip
def test_signals_are_passed_on(name: str, number: signal.Signals) -> None:
    with started("runlocked", name, "--using", STORE, "--", *python(HEAR)) as running:
        assert line(running) == "ready"
        running.send_signal(number)
        assert end(running) == (7, f"{number.name}\n", "")
    assert not is_held(name)


def test_signals_reach_what_the_command_has_started(name: str) -> None:
    shell = "sleep 60 & echo $!; wait"
    with started("runlocked", name, "--using", STORE, "--shell", "--", shell) as running:
        inner = int(line(running))
        running.send_signal(signal.SIGTERM)
        assert end(running)[0] == 128 + signal.SIGTERM
        assert soon(lambda: gone(inner))


def test_a_command_ended_by_a_signal(name: str) -> None:
    shell = "kill -KILL $$"
    done = run("runlocked", name, "--using", STORE, "--shell", "--", shell)
    assert done.returncode == 128 + signal.SIGKILL


def test_what_we_ignore_the_command_does_not_hear(name: str) -> None:
    """As with nohup."""
    inner = [*COMMAND, "runlocked", name, "--using", STORE]
    inner += ["--", "sh", "-c", "echo ready; read x; echo end"]
    shell = f"trap '' HUP; exec {shlex.join(inner)}"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["/bin/sh", "-c", shell], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as running:
        assert line(running) == "ready"
        running.send_signal(signal.SIGHUP)
        assert end(running, "\n") == (0, "end\n", "")


def test_on_a_terminal_ctrl_c_is_heard_once(name: str) -> None:
    """The terminal sends it to the command itself, which has to stay in its foreground."""
    program = (
        "import os, signal, sys\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "print(os.getppid(), flush=True)\n"
        "line = sys.stdin.readline().strip()\n"
        "print('read', line, 'heard', len(heard), flush=True)\n"
        "sys.exit(5)\n"
    )
    inner = [*COMMAND, "runlocked", name, "--using", STORE, "--", *python(program)]
    spawn = f"import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn({inner!r})))"
    pipe = subprocess.PIPE
    with subprocess.Popen(python(spawn), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as outer:
        os.kill(int(line(outer)), signal.SIGINT)  # as the terminal sends it to us: not passed on
        assert outer.stdin is not None
        for typed in ("\x03", "word\n"):
            with suppress(subprocess.TimeoutExpired):
                outer.wait(0.3)
            outer.stdin.write(typed)
            outer.stdin.flush()
        assert outer.wait(LIMIT) == 5
        assert outer.stdout is not None
        assert "read word heard 1" in outer.stdout.read()


# -- lost ----------------------------------------------------------------------------------------


def lost(running: subprocess.Popen[str], name: str) -> tuple[int, str, str]:
    locks[STORE].force_release(name)
    return end(running)


def test_a_lost_lock_ends_the_command(name: str) -> None:
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "0.9")
    with started(*arguments, "--", *python(HEAR)) as running:
        assert line(running) == "ready"
        code, out, err = lost(running, name)
    assert (code, out) == (70, "SIGTERM\n")
    assert "\nThe lock is lost: the command is ended.\n" in err
    assert "CommandError: The lease is lost: the store says that it is not ours any more" in err


def test_a_command_that_does_not_end_is_killed(name: str) -> None:
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "0.9", "--kill-after", "0.3")
    with started(*arguments, "--", *python(DEAF)) as running:
        assert line(running) == "ready"
        assert lost(running, name)[0] == 70


def test_what_a_command_has_started_ends_with_it(name: str, tmp_path: Path) -> None:
    """Also when the command itself ends at once, and what it started does not want to."""
    deaf = tmp_path / "deaf.py"
    deaf.write_text(DEAF)
    shell = f"{sys.executable} {deaf} & echo $!; wait"
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "0.9", "--kill-after", "0.5")
    with started(*arguments, "--shell", "--", shell) as running:
        said = sorted([line(running), line(running)])
        assert said[1] == "ready"
        assert lost(running, name)[0] == 70
        assert soon(lambda: gone(int(said[0])))


def test_a_stopped_command_is_ended_too(name: str) -> None:
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "0.9")
    program = f"import os; print(os.getpid(), flush=True)\n{HEAR}"
    with started(*arguments, "--", *python(program)) as running:
        pid = int(line(running))
        assert line(running) == "ready"
        os.kill(pid, signal.SIGSTOP)
        assert lost(running, name)[:2] == (70, "SIGTERM\n")


def test_the_lock_is_renewed_as_long_as_the_command_runs(name: str) -> None:
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "3")
    with started(*arguments, "--", "sh", "-c", "echo begun; read x; echo end") as running:
        assert line(running) == "begun"
        with suppress(subprocess.TimeoutExpired):
            running.wait(4)
        assert is_held(name)
        assert end(running, "\n") == (0, "end\n", "")


def test_in_a_thread_there_are_no_signals_but_a_lock(name: str) -> None:
    def work() -> Any:
        return Ran("runlocked", name, "--", "sh", "-c", "exit 4", using=STORE).code

    assert elsewhere(work) == 4


def test_the_command_is_shown(name: str) -> None:
    with started("runlocked", name, "--using", STORE, "--", *python(DEAF), "a b") as process:
        assert line(process) == "ready"
        info = locks[STORE].inspect(name)
        assert info is not None
        assert info.metadata["command"].endswith("'a b'")
        assert "runlocked.py:" in info.holder.site
        process.kill()
    locks[STORE].force_release(name)


@pytest.mark.parametrize(("code", "kept"), [(0, True), (3, False)])
def test_it_is_held_at_least_so_long(name: str, code: int, kept: bool) -> None:
    command = python(f"import sys; sys.exit({code})")
    ran = Ran("runlocked", name, "--", *command, using=STORE, min_hold="50s")
    assert ran.code == code
    info = locks[STORE].inspect(name)
    assert (info is not None) is kept
    if info is not None:
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert 40 < (info.expires_at - info.acquired_at).total_seconds() <= 52
        locks[STORE].force_release(name)


@pytest.mark.parametrize("wrong", ["x", "0", "-5"])
def test_how_long_it_is_held_is_judged_first(name: str, wrong: str, tmp_path: Path) -> None:
    command = python(f"open({str(tmp_path / 'ran')!r}, 'w')")
    ran = Ran("runlocked", name, "--", *command, using=STORE, min_hold=wrong)
    assert "--min-hold" in ran.failed
    assert not (tmp_path / "ran").exists()


# -- a leader ------------------------------------------------------------------------------------

COUNTS = """
import os, sys, time
print(os.environ["DISTLOCK_FENCING_TOKEN"], flush=True)
sys.stdin.readline()
sys.exit(3)
"""
"""A program that ends when it is written a line."""


def test_one_copy_runs_in_the_fleet(name: str) -> None:
    """Whoever leads runs it; when that one is asked to end, another one does."""
    words = ("runlocked", name, "--using", STORE, "--leader", "--", *python(HEAR))
    with started(*words) as first:
        assert line(first) == "ready"
        with started(*words) as second:
            first.send_signal(signal.SIGTERM)
            assert end(first)[0] == 7
            assert line(second) == "ready"
            second.send_signal(signal.SIGTERM)
            assert end(second)[0] == 7
    assert not is_held(name)


def test_a_leaders_command_is_run_again(name: str) -> None:
    words = ("runlocked", name, "--using", STORE, "--ttl", "2", "--leader", "--")
    with started(*words, *python(COUNTS)) as leading:
        assert leading.stdin is not None
        tokens = [int(line(leading))]
        leading.stdin.write("end\n")
        leading.stdin.flush()
        tokens.append(int(line(leading)))
        locks[STORE].force_release(name)  # and it is ended, and run once more
        tokens.append(int(line(leading)))
        assert tokens == sorted(set(tokens))
        leading.send_signal(signal.SIGTERM)
        code, _, err = end(leading)
    assert code == 128 + signal.SIGTERM
    assert "The command has ended with code 3." in err
    assert "The lock is lost: the command is ended." in err


def test_a_leader_that_waits_ends_when_asked_to(name: str) -> None:
    with lock(name, using=STORE):
        words = ("runlocked", name, "--using", STORE, "--leader", "--", "echo", "x")
        with started(*words) as waiting:
            assert soon(lambda: catches(waiting.pid, signal.SIGTERM), LIMIT)
            assert soon(lambda: rests(waiting.pid), LIMIT)
            waiting.send_signal(signal.SIGTERM)
            assert end(waiting)[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize("wrong", [{"shared": True}, {"limit": 2}], ids=str)
def test_a_leader_leads_alone(name: str, wrong: dict[str, Any]) -> None:
    ran = Ran("runlocked", name, "--", "true", using=STORE, leader=True, **wrong)
    assert "leads alone" in ran.failed


@pytest.mark.parametrize("wrong", [{"wait": "5"}, {"on_contention": 0}], ids=str)
def test_a_leader_waits_without_limit(name: str, wrong: dict[str, Any]) -> None:
    ran = Ran("runlocked", name, "--", "true", using=STORE, leader=True, **wrong)
    assert "--wait" in ran.failed
