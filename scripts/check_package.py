"""Build sdist and wheel, check what they hold, and use the wheel in a clean environment.

Needs the module ``build``. Works in a temporary folder. With ``--release`` it refuses an address of
the documentation that is reserved for examples: it has to be replaced before anything is published.
"""

from __future__ import annotations

import os
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
# The drivers of stores, and pytest: the app must work where none is installed.
ABSENT = (
    "psycopg", "psycopg2", "MySQLdb", "redis", "kazoo", "httptools", "celery", "prometheus_client",
    "opentelemetry", "health_check", "pytest",
)  # fmt: skip

SETTINGS = """
SECRET_KEY = "only for a moment"
INSTALLED_APPS = ["django_distlock"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
USE_TZ = True
"""
USE = f"""
import importlib.util
import sys

import django_distlock
from django_distlock import lock, locks

there = [name for name in {ABSENT!r} if importlib.util.find_spec(name)]
assert not there, f"the environment is not clean: {{there}}"
assert django_distlock.__file__.startswith(sys.prefix), django_distlock.__file__
with lock("stock:7") as lease:
    assert lease.fencing_token > 0
    assert lock("stock:7").locked()
    assert [info.name for info in locks["default"].held()] == ["stock:7"]
assert not lock("stock:7").locked()
print("a lock was taken and released")
"""


class WrongPackage(Exception):
    """What the wheel holds or says is not what users should get."""


def run(*command: str, cwd: Path) -> None:
    """Show a command and run it, without what this environment adds to every Python."""
    print("==>", *command, flush=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run(command, check=True, cwd=cwd, env=clean)


def build(folder: Path) -> tuple[Path, Path]:
    """Return the sdist and the wheel, which is built from it: what the sdist lacks is noticed."""
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT), cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def compare_sdist(sdist: Path) -> None:
    """Compare the sdist's files with those that git keeps, but for what is about git and CI."""
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    kept = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    wanted = {path for path in kept if path not in (".gitignore", ".ci/run")}
    generated = {"PKG-INFO", *(path for path in files if ".egg-info/" in path)}
    problems = {
        "missing in the sdist": wanted - files,
        "too much in the sdist": files - wanted - generated,
        "gone": {folder for folder in BESIDE if not any(p.startswith(folder) for p in files)},
    }
    if any(problems.values()):
        raise WrongPackage(_lines(problems.items()))


def compare(packed: set[str], wanted: set[str]) -> None:
    """Compare the wheel's files with the package's: code, py.typed, migrations, templates, all."""
    problems = {
        "missing in the wheel": wanted - packed,
        "too much in the wheel": packed - wanted,
        "gone from the package": ESSENTIAL - packed,
    }
    if any(problems.values()):
        raise WrongPackage(_lines(problems.items()))


def describe(metadata: Message) -> None:
    """Check what the wheel says of itself: one dependency, a README, a licence, addresses."""
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    problems = {
        "Requires-Dist": set(needed) - {"Django>=5.2"},
        "Requires-Python": {str(metadata["Requires-Python"])} - {">=3.11"},
        "License-Expression": {str(metadata["License-Expression"])} - {"BSD-3-Clause"},
        "License-File": {"LICENSE"} - set(metadata.get_all("License-File", [])),
        "Project-URL": {"Documentation", "Changelog"}
        - {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])},
    }
    if "--release" in sys.argv and PLACEHOLDER in str(metadata.get_all("Project-URL")):
        raise WrongPackage("The address of the documentation is still the placeholder")
    if any(problems.values()):
        raise WrongPackage(_lines(problems.items()))
    body = metadata.get_payload()
    if not isinstance(body, str) or "django-distlock" not in body:
        raise WrongPackage("The wheel's description is not the README")


def _lines(problems: Iterable[tuple[str, set[str]]]) -> str:
    return "\n".join(f"{what}: {', '.join(sorted(which))}" for what, which in problems if which)


def use(wheel: Path, folder: Path) -> None:
    """Install the wheel without any extra, and lock in a project of a few lines on SQLite."""
    venv.create(folder / "clean", with_pip=True)
    python = str(folder / "clean" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", str(wheel), cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)

    project = folder / "project"
    project.mkdir()
    (project / "settings.py").write_text(SETTINGS)
    (project / "use.py").write_text(USE)
    strict = (python, "-W", "error", "-m", "django")
    ours = ("--settings", "settings", "--pythonpath", str(project))
    run(*strict, "check", "--fail-level", "WARNING", *ours, cwd=project)
    run(*strict, "makemigrations", "--check", "--dry-run", *ours, cwd=project)
    run(*strict, "migrate", *ours, cwd=project)
    run(*strict, "check", "--fail-level", "WARNING", "--database", "default", *ours, cwd=project)
    run(*strict, "shell", "-c", "import use", *ours, cwd=project)


def main() -> None:
    """Run the check; end with an error that says what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        with zipfile.ZipFile(wheel) as archive:
            packed = {path for path in archive.namelist() if ".dist-info/" not in path}
            (about,) = (path for path in archive.namelist() if path.endswith("/METADATA"))
            metadata = Parser().parsestr(archive.read(about).decode())
        files = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file())
        wanted = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
        try:
            compare_sdist(sdist)
            compare(packed, wanted)
            describe(metadata)
        except WrongPackage as error:
            sys.exit(str(error))
        use(wheel, folder)
        print(f"{wheel.name}: {len(packed)} files, all of {PACKAGE} and nothing else")


if __name__ == "__main__":
    main()
