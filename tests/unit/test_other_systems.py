"""Systems without fork, process groups and most signals, as Windows: simulated in a process.

What such a system lacks is taken away once Python and Django are loaded, which have guards of their
own; then every module is imported, and locks are used.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.unit.graph import ROOT

LACKING = """
import asyncio, getpass, importlib, os, pkgutil, signal, subprocess, sys, threading
import django
from django.conf import settings
from django.core.management import call_command

path = sys.argv[1]
settings.configure(
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django_distlock",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": path}},
    DISTLOCKS={
        "default": {"BACKEND": "django_distlock.backends.table.TableBackend"},
        "memory": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
    },
)
import django.db.models, django.core.files.locks
import redis, kazoo.client, celery.contrib.testing.worker, billiard.exceptions, httptools
asyncio.new_event_loop().close()  # Python 3.14 chooses the kind for the system at the first use

NAMES = '''fork forkpty register_at_fork killpg getpgrp getpgid setpgid tcgetpgrp setsid getuid
    geteuid getgid getegid wait WNOHANG sysconf mkfifo nice uname'''.split()
SIGNALS = "SIGKILL SIGQUIT SIGHUP SIGUSR1 SIGUSR2 SIGCONT SIGSTOP SIGALRM SIGCHLD".split()
for name in NAMES:
    if hasattr(os, name):
        delattr(os, name)
for name in SIGNALS:
    delattr(signal, name)
for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules[name] = None  # to import it is an ImportError
getpass.getuser = lambda: "somebody"
# As Python's own does there, for which Popen has been loaded for this system.
send = subprocess.Popen.send_signal
sys.platform = "win32"
django.setup()
"""

IMPORTS = """
import django_distlock

seen = 0
for module in pkgutil.walk_packages(django_distlock.__path__, "django_distlock."):
    parts = module.name.split(".")
    if "contract" in parts or "migrations" in parts or parts[-1] == "queue_file":
        continue  # for writers of backends; Linux alone has that file, which is asked by platform
    try:
        importlib.import_module(module.name)
    except (django.core.exceptions.ImproperlyConfigured, ModuleNotFoundError) as error:
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        # A driver that is not installed here; not what was taken away above, which is in there.
        assert cause.name not in sys.modules, (module.name, error)
    seen += 1
print(seen)
"""

USES = """
from django_distlock import lock

call_command("migrate", verbosity=0)
for alias in ("default", "memory"):
    with lock("a", using=alias, ttl=600) as lease:
        lease.renew()
        found = []
        thread = threading.Thread(
            target=lambda: found.append(lock("a", using=alias, wait=0.2).acquire())
        )
        thread.start()
        thread.join()
        assert found == [None], found

    async def use():
        async with lock("a", using=alias, ttl=600):
            pass

    asyncio.run(use())
call_command("locks", "list")
try:
    call_command("runlocked", "job", "--", sys.executable, "-c", "import sys; sys.exit(7)")
except SystemExit as ended:
    assert ended.code == 7, ended.code
else:
    raise AssertionError("runlocked has not ended with the code of its program")
print("used")
"""


def _run(program: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(path / "db.sqlite3")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_module_is_imported(tmp_path: Path) -> None:
    assert int(_run(LACKING + IMPORTS, tmp_path)) > 150


def test_locks_are_used(tmp_path: Path) -> None:
    assert _run(LACKING + USES, tmp_path).splitlines()[-1] == "used"


def test_what_a_system_may_lack_stands_in_one_place() -> None:
    lacking = re.compile(
        r"\bos\.(fork|register_at_fork|killpg|getpgrp|tcgetpgrp|kill|[gs]etuid|[gs]eteuid)\b"
        r"|\bsignal\.SIG(KILL|QUIT|HUP|USR\d|CONT|STOP)\b|^import (fcntl|pwd|resource)",
        re.MULTILINE,
    )
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "testing" not in path.parts and lacking.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"core/system.py", "backends/table/queue_file.py"}
