"""The site that Sphinx makes of the pages: it builds without a warning, and hints lead into it."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from django_distlock.core.checking import SITE, page
from tests.docs.pages import ROOT, pages

pytestmark = pytest.mark.timeout(600)  # the site is built meanwhile

IDS = re.compile(r'\bid="([^"]+)"')
ADDRESSED = re.compile(r"""\bpage\(\s*["']([\w/-]+)["'](?:,\s*["']([^"']+)["'])?\s*\)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def _leads_into(site: Path, address: str) -> bool:
    """Tell whether an address of the site is a page, and its fragment an id on it."""
    assert address.startswith(SITE)
    parts = urlsplit(address)
    file = site / parts.path.lstrip("/")
    if not file.is_file():
        return False
    return not parts.fragment or parts.fragment in IDS.findall(file.read_text(encoding="utf-8"))


def test_every_page_is_there_and_in_the_contents(site: Path) -> None:
    contents = (site / "index.html").read_text(encoding="utf-8")
    for each in pages()[1:]:
        name = each.path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / name).is_file(), name
        assert name == "index.html" or f'href="{name}"' in contents, name


def test_every_check_can_be_looked_up(site: Path) -> None:
    checks = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    found = re.findall(r"^#+ `?(distlock\.\w+)`?", checks, re.MULTILINE)
    assert len(found) > 20
    lost = [each for each in found if not _leads_into(site, page("reference/checks", each))]
    assert lost == []


def test_addresses_in_the_code_lead_somewhere(site: Path) -> None:
    """Those that are written out; the ids of checks are above."""
    found = {
        page(*filter(None, match.groups()))
        for file in sorted((ROOT / "django_distlock").rglob("*.py"))
        for match in ADDRESSED.finditer(file.read_text(encoding="utf-8"))
    }
    assert found
    assert [each for each in sorted(found) if not _leads_into(site, each)] == []


def test_the_changelog_is_a_page(site: Path) -> None:
    text = unescape((site / "changelog.html").read_text(encoding="utf-8"))
    assert "Keep a Changelog" in text
    assert _leads_into(site, f"{SITE}changelog.html")
