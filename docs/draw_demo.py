#!/usr/bin/env python
"""Draw what `make demo` prints, for the README: pictures/demo.svg.

    python docs/draw_demo.py

It runs the demo on SQLite, so the figures are of this machine. Drawn by rich, which the demo needs.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).resolve().parent
COLUMNS = 100
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def main() -> int:
    """Run the demo, and return its exit code."""
    command = [sys.executable, "manage.py", "demo", "--using", "default"]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text("$ make demo", style="bold"))
    for line in done.stdout.partition("\nNext:")[0].splitlines():
        beyond = "beyond the stock" in line or line.startswith("no lock  ")
        console.print(Text(line, style="red" if beyond else ""))
    drawn = console.export_svg(title="django-distlock")
    (DOCS / "pictures" / "demo.svg").write_text(FONTS.sub("", drawn), encoding="utf-8")
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
