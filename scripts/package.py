"""Build sdist and wheel, the same bytes each time; check what they hold; use the wheel.

``python scripts/package.py`` leaves them in ``dist/``, to be published by ``twine upload dist/*``.
Needs the modules ``build`` and ``twine``. With ``--release`` it refuses an address of the
documentation that is reserved for examples: it has to be replaced before anything is published.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_distlock"

# Also in the working tree, which the wheel is compared with: a file that is gone from both is seen.
ESSENTIAL = {
    f"{PACKAGE}/{path}"
    for path in ("__init__.py", "py.typed", "migrations/__init__.py", "migrations/0001_initial.py")
}
# Packed beside the package, so that who has the sdist alone can test it and read about it.
BESIDE = ("tests", "docs", "testproject", "examples", "benchmarks", "scripts")
PLACEHOLDER = ".example/"
OTHERS = {"all", "contract"}  # the extras that "all" does not bring

SETTINGS = """
SECRET_KEY = "only for a moment"
INSTALLED_APPS = ["django_distlock"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
USE_TZ = True
"""
# Of the stores that have a driver, by the extra that brings it, and no server.
STORES = """
from settings import *
NOWHERE = {"NAME": "x", "HOST": "127.0.0.1", "PORT": "1"}
DATABASES["postgres"] = {"ENGINE": "django.db.backends.postgresql", **NOWHERE}
DATABASES["mysql"] = {"ENGINE": "django.db.backends.mysql", **NOWHERE}
URL = "redis://127.0.0.1:1/0"
CACHES = {"redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}}
BACKENDS = {
    "postgres": ("table.TableBackend", "postgres"),
    "mysql": ("table.TableBackend", "mysql"),
    "redis": ("redis.RedisBackend", URL),
    "hiredis": ("redis.RedisBackend", URL),
    "django-redis": ("redis.RedisBackend", "redis"),
    "zookeeper": ("zookeeper.ZooKeeperBackend", "127.0.0.1:1"),
    "etcd": ("etcd.EtcdBackend", "http://127.0.0.1:1"),
    "consul": ("consul.ConsulBackend", "http://127.0.0.1:1"),
}
DISTLOCKS = {
    extra: {"BACKEND": f"django_distlock.backends.{path}", "LOCATION": location}
    for extra, (path, location) in BACKENDS.items()
}
"""
# With no extra: a lock in SQLite, and nothing installed but Django.
USE = """
import sys

import django_distlock
from django_distlock import lock, locks

assert django_distlock.__file__.startswith(sys.prefix), django_distlock.__file__
with lock("stock:7") as lease:
    assert lease.fencing_token > 0
    assert lock("stock:7").locked()
    assert [info.name for info in locks["default"].held()] == ["stock:7"]
assert not lock("stock:7").locked()
print("a lock was taken and released")
"""
# With an extra: by the driver of a store we know that its server does not answer.
ASK = """
import sys
from importlib import import_module

from django_distlock import LockBackendError, lock, locks

SERVED = {
    "celery": "django_distlock.contrib.celery",
    "rest-framework": "django_distlock.contrib.rest_framework",
    "prometheus": "django_distlock.contrib.prometheus",
    "opentelemetry": "django_distlock.contrib.opentelemetry",
    "health": "django_distlock.contrib.health_check",
    "contract": "django_distlock.testing.contract",
}
for extra in EXTRAS:
    if extra in SERVED:
        import_module(SERVED[extra])
    else:
        assert extra in locks, f"what the extra {extra} is there for is not known here"
        try:
            lock("stock:7", using=extra).acquire(wait=0)
        except LockBackendError as error:
            print(f"{type(error).__name__}: {error}")
        else:
            sys.exit("a lock of a server that is not there")
"""


class WrongPackageError(Exception):
    """What was built is not what users should get."""


def run(*command: str, cwd: Path, umask: int = -1, **environment: str) -> None:
    """Show a command and run it, without what this environment adds to every Python."""
    print("==>", *command, flush=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run(command, check=True, cwd=cwd, env=clean | environment, umask=umask)


def git(*words: str) -> str:
    """Return what git says of the working tree."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


# -- building --------------------------------------------------------------------------------------


def build(source: Path, folder: Path, when: str, *, umask: int) -> tuple[Path, Path]:
    """Return the sdist and the wheel, which is built from it: what the sdist lacks is noticed."""
    tool = (sys.executable, "-m", "build", "--outdir", str(folder))
    run(*tool, "--sdist", str(source), cwd=folder, umask=umask)
    (sdist,) = folder.glob("*.tar.gz")
    settle(sdist, int(when))
    # A wheel has the modes of the files that are made for it.
    run(*tool, "--wheel", str(unpack(sdist)), cwd=folder, umask=0o022, SOURCE_DATE_EPOCH=when)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def unpack(sdist: Path) -> Path:
    """Return the folder of an sdist's files."""
    into = sdist.parent / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


def settle(sdist: Path, when: int) -> None:
    """Pack an sdist again without what differs from machine to machine: times, users, modes."""
    settled = sdist.with_suffix(".settled")
    with (
        tarfile.open(sdist) as old,
        settled.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old, key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.type, plain.mtime = member.size, member.type, when
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    settled.replace(sdist)


def compare_builds(ours: Iterable[Path], theirs: Iterable[Path]) -> None:
    """Compare what was built here with what was built from the sdist, elsewhere."""
    for one, other in zip(ours, theirs, strict=True):
        if hashlib.sha256(one.read_bytes()).digest() != hashlib.sha256(other.read_bytes()).digest():
            raise WrongPackageError(f"{one.name} is another one when it is built again")


# -- what they hold --------------------------------------------------------------------------------


def compare_sdist(sdist: Path) -> None:
    """Compare the sdist's files with those that git keeps, but for what is about git and CI."""
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    wanted = {path for path in git("ls-files").splitlines() if not path.startswith(".")}
    generated = {"PKG-INFO", *(path for path in files if ".egg-info/" in path)}
    _judge(
        {
            "missing in the sdist": wanted - files,
            "too much in the sdist": files - wanted - generated,
            "gone": {folder for folder in BESIDE if not any(p.startswith(folder) for p in files)},
        }
    )


def compare_wheel(packed: set[str]) -> None:
    """Compare the wheel's files with the package's: code, py.typed, migrations, templates, all."""
    files = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file())
    wanted = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    _judge(
        {
            "missing in the wheel": wanted - packed,
            "too much in the wheel": packed - wanted,
            "gone from the package": ESSENTIAL - packed,
        }
    )


def describe(metadata: Message) -> None:
    """Check what the wheel says of itself: one dependency, a README, a licence, addresses."""
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    _judge(
        {
            "Requires-Dist": set(needed) - {"Django>=5.2"},
            "Requires-Python": {str(metadata["Requires-Python"])} - {">=3.11"},
            "License-Expression": {str(metadata["License-Expression"])} - {"BSD-3-Clause"},
            "License-File": {"LICENSE"} - set(metadata.get_all("License-File", [])),
            "Project-URL": {"Documentation", "Changelog"}
            - {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])},
        }
    )
    if "--release" in sys.argv and PLACEHOLDER in str(metadata.get_all("Project-URL")):
        raise WrongPackageError("The address of the documentation is still the placeholder")
    body = metadata.get_payload()
    if not isinstance(body, str) or "django-distlock" not in body:
        raise WrongPackageError("The wheel's description is not the README")


def _judge(problems: dict[str, set[str]]) -> None:
    found = [f"{what}: {', '.join(sorted(which))}" for what, which in problems.items() if which]
    if found:
        raise WrongPackageError("\n".join(found))


# -- using the wheel -------------------------------------------------------------------------------


def use(wheel: Path, folder: Path) -> None:
    """Install the wheel without any extra, and lock in a project of a few lines on SQLite."""
    project = folder / "project"
    project.mkdir()
    (project / "settings.py").write_text(SETTINGS)
    (project / "use.py").write_text(USE)
    python = install(wheel, "", folder)
    installed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    names = {line.partition("=")[0].lower() for line in installed.splitlines()}
    django = {"django", "asgiref", "sqlparse"}
    _judge({"installed beside it": names - django - {"django-distlock", "pip", "setuptools"}})
    strict = (python, "-W", "error", "-m", "django")
    ours = ("--settings", "settings", "--pythonpath", str(project))
    run(*strict, "check", "--fail-level", "WARNING", *ours, cwd=project)
    run(*strict, "makemigrations", "--check", "--dry-run", *ours, cwd=project)
    run(*strict, "migrate", *ours, cwd=project)
    run(*strict, "check", "--fail-level", "WARNING", "--database", "default", *ours, cwd=project)
    run(*strict, "shell", "-c", "import use", *ours, cwd=project)


def use_extra(wheel: Path, extra: str, brought: set[str], folder: Path) -> None:
    """Install the wheel with an extra, and use what it brings."""
    python = install(wheel, extra, folder)
    project = folder / "project"
    (project / "stores.py").write_text(STORES)
    (project / "ask.py").write_text(f"EXTRAS = {sorted(brought)}\n{ASK}")
    ours = ("--settings", "stores", "--pythonpath", str(project))
    run(python, "-m", "django", "shell", "-c", "import ask", *ours, cwd=project)


def install(wheel: Path, extra: str, folder: Path) -> str:
    """Return the Python of a clean environment with the wheel."""
    place = folder / f"with-{extra}"
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    quiet = ("--quiet", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", *quiet, what, cwd=folder)
    run(python, "-m", "pip", "check", *quiet, cwd=folder)
    return python


def main() -> None:
    """Build and check; end with an error that says what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name, "here"), Path(name, "there")
        here.mkdir()
        there.mkdir()
        try:
            when = git("log", "-1", "--format=%ct").strip()
            sdist, wheel = build(ROOT, here, when, umask=0o022)
            unpacked = here / "unpacked" / sdist.name.removesuffix(".tar.gz")
            again = build(unpacked, there, when, umask=0o077)
            compare_builds((sdist, wheel), again)
            with zipfile.ZipFile(wheel) as archive:
                packed = {path for path in archive.namelist() if ".dist-info/" not in path}
                (about,) = (path for path in archive.namelist() if path.endswith("/METADATA"))
                metadata = Parser().parsestr(archive.read(about).decode())
            compare_sdist(sdist)
            compare_wheel(packed)
            describe(metadata)
            run(
                sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel), cwd=here
            )
            use(wheel, here)
            extras = set(metadata.get_all("Provides-Extra", []))
            for extra in sorted(extras):
                use_extra(wheel, extra, extras - OTHERS if extra == "all" else {extra}, here)
        except WrongPackageError as error:
            sys.exit(str(error))
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        for each in (sdist, wheel):
            shutil.copy(each, dist)
            print(f"dist/{each.name}: sha256 {hashlib.sha256(each.read_bytes()).hexdigest()}")
        print(f"{len(packed)} files, all of {PACKAGE} and nothing else")


if __name__ == "__main__":
    main()
