"""Build the wheel, check that it holds the package and nothing else, install and import it.

Needs the module ``build``. Works in a temporary folder.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_distlock"


def run(*command: str, cwd: Path) -> None:
    """Show a command and run it."""
    print("==>", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd)


def main() -> None:
    """Run the check; end with an error that says what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # By way of an sdist, so that what the sdist lacks is noticed, too.
        run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT), cwd=folder)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            packed = {path for path in archive.namelist() if ".dist-info/" not in path}
        files = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file())
        wanted = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
        if packed != wanted:
            print("missing in the wheel:", *sorted(wanted - packed) or ["nothing"])
            print("too much in the wheel:", *sorted(packed - wanted) or ["nothing"])
            sys.exit(1)
        venv.create(folder / "clean", with_pip=True)
        python = str(folder / "clean" / "bin" / "python")
        run(python, "-m", "pip", "install", "--quiet", str(wheel), cwd=folder)
        run(python, "-W", "error", "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)", cwd=folder)
        print(f"{wheel.name}: {len(packed)} files, all of {PACKAGE} and nothing else")


if __name__ == "__main__":
    main()
