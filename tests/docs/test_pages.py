"""Links resolve, commands exist, and every page is found."""

from __future__ import annotations

import configparser
import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from django.core.management import get_commands

from django_distlock.core.checking import SITE
from tests.docs.pages import ROOT, Block, Page, pages

BUILT_IN = {".", "echo", "kill", "until", "wait", "time", "cd"}

WEB = re.compile(
    r"https://([a-z0-9-]+\.)+[a-z]{2,}(/[\w.~/%+@=-]*)?(\?[\w.~/%+@=&-]*)?(#[\w.~/-]+)?"
)
"""The links to the web that we write; the tests do not go there."""

every_page = pytest.mark.parametrize("page", pages(), ids=str)


def test_there_are_pages_of_all_four_kinds() -> None:
    """Guard the tests below against finding nothing."""
    folders = {page.path.parent.name for page in pages()}
    assert folders >= {"docs", "tutorial", "howto", "reference", "explanation"}


BESIDE = [
    Page(ROOT / name)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.zh-CN.md")
]
"""Pages whose examples are not run: those of the Chinese README are the English one's."""


@pytest.mark.parametrize("page", [*pages(), *BESIDE], ids=str)
def test_links_lead_somewhere(page: Page) -> None:
    """Follow every relative link to its file and anchor; others have to be well-formed."""
    for line, target in page.links():
        where = f"{page}:{line}: {target}"
        if re.match(r"[a-z+.-]+:", target, re.I):
            assert WEB.fullmatch(target), where
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        assert file.is_relative_to(ROOT), where
        assert file.exists(), f"{where} does not exist"
        if anchor:
            assert anchor in Page(file).anchors(), f"{where} has no such heading"


def test_the_index_leads_to_every_page() -> None:
    """Find a page that no index names."""
    index = Page(ROOT / "docs" / "index.md")
    named = {(index.path.parent / target).resolve() for _, target in index.links()}
    written = {page.path for page in pages() if page.path.is_relative_to(ROOT / "docs")}
    assert written - {index.path} == named


@pytest.mark.parametrize("page", [*pages(), *BESIDE], ids=str)
def test_commands_exist(page: Page) -> None:
    """Look up every command of the shell blocks, and what it is asked to do."""
    files = [block.file or "" for block in page.blocks()]
    made = {Path(file).stem for file in files if "/management/commands/" in file}
    for block in page.blocks():
        if block.language == "shell":
            for command in _commands(block):
                assert _exists(command, made), f"{page}:{block.line}: {command}"


def _commands(block: Block) -> list[list[str]]:
    lines = (re.sub(r" #.*", "", line) for line in block.text.splitlines())
    parts = (part for line in lines for part in re.split(r"[;&|]+|\bdo\b|\bdone\b", line))
    return [part.split() for part in parts if part.strip()]


def _exists(command: list[str], made: set[str]) -> bool:
    match command:
        case ["make", target, *_]:
            text = (ROOT / "Makefile").read_text()
            return re.search(rf"^{re.escape(target)}:", text, re.M) is not None
        case ["pip", "install", what, *_]:
            return _installable(what.strip('"'))
        case ["python", "manage.py", name, *_]:
            # The users of a new project are not installed here.
            return name in get_commands() or name in made or name == "createsuperuser"
        case ["python", "-m", module, *_]:
            return module == "venv" or (ROOT / module / "__main__.py").exists()
        case ["python", "docs/generate.py", *_]:
            return (ROOT / "docs" / "generate.py").exists()
        case [setting, *rest] if "=" in setting:
            return _exists(rest, made)
        case ["time", *rest]:
            return _exists(rest, made)
        case ["django-admin", "startproject", *_]:
            return True
        case [program, *_]:
            return program in BUILT_IN or shutil.which(program) is not None
    return False


def _installable(what: str) -> bool:
    """Tell whether ``pip install`` finds this distribution and its extras."""
    found = re.fullmatch(r"\.{1,2}/(?P<name>[\w-]+)(\[(?P<extras>[\w,]+)\])?", what)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return (
        found is not None
        and found["name"] == setup["metadata"]["name"]
        and set((found["extras"] or "").split(",")) - {""} <= set(setup["options.extras_require"])
    )


@every_page
def test_configuration_files_parse(page: Page) -> None:
    """Read what stands in ini blocks."""
    for block in page.blocks():
        if block.language == "ini":
            parser = configparser.ConfigParser()
            parser.read_string(block.text)
            assert parser.sections(), f"{page}:{block.line}"


@every_page
def test_sql_is_run_or_generated(page: Page) -> None:
    """Let no statement stand that nothing checks.

    What is ``granted`` is run by tests.backends.test_server_limits, on the servers.
    """
    generated = "<!-- generated: sql" in page.text
    for block in page.blocks():
        if block.language == "sql":
            assert generated or block.words in (("run",), ("granted",)), f"{page}:{block.line}"


def test_every_dependency_has_its_reason() -> None:
    """Say what is installed, and why."""
    page = Page(ROOT / "CONTRIBUTING.md")
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lists = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    needed = {
        re.split(r"[\[<>=;~ ]", line)[0]
        for text in lists
        for line in text.split("\n")
        if line and not line.startswith("django-distlock")
    }
    said = page.text[page.text.index("## Dependencies") :]
    assert {name for name in needed if f"**{name.lower()}**" not in said.lower()} == set()


def test_the_readme_names_every_extra() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [each for each in setup["options.extras_require"] if f"`{each}`" not in said] == []


def translations() -> ModuleType:
    """Return docs/translations.py as a module."""
    spec = importlib.util.spec_from_file_location("translations", ROOT / "docs/translations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


CHINESE = {
    _named(english): _named(page) for page, english in translations().translated(ROOT / "docs")
}
"""English pages, and their Chinese ones."""


def _page_of(page: Page, target: str) -> str:
    """Return the page that a link leads to, the English one of both; empty for the web and here."""
    if ":" in target or target.startswith("#"):
        return ""
    path = _named((page.path.parent / target.partition("#")[0]).resolve())
    return {chinese: english for english, chinese in CHINESE.items()}.get(path, path)


def test_the_chinese_core_is_there() -> None:
    core = ("why-a-lock-is-not-enough", "which-backend", "guarantees", "well-known-recipes")
    pages = ["README.md", "docs/tutorial/first-lock.md"]
    pages += [f"docs/explanation/{page}.md" for page in core]
    assert set(pages) <= set(CHINESE)


def test_a_chinese_page_that_is_behind_is_named(tmp_path: Path) -> None:
    """Change an English page; note that it was translated again."""
    module, docs = translations(), tmp_path / "docs"
    (docs / "zh").mkdir(parents=True)
    for english, chinese in CHINESE.items():
        for name in (english, chinese):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    for page, english in module.translated(docs):
        module.done(page, english)
    assert module.behind(docs) == []
    changed = tmp_path / "docs/explanation/which-backend.md"
    changed.write_text(changed.read_text() + "One more sentence.\n")
    assert module.behind(docs) == [(docs / "zh/which-backend.md", changed)]
    module.done(docs / "zh/which-backend.md", changed)
    assert module.behind(docs) == []
    assert (docs / "zh/which-backend.md").read_text().count("<!-- translated:") == 1


@pytest.mark.parametrize("english", CHINESE, ids=str)
def test_a_chinese_page_has_the_same_parts(english: str) -> None:
    """Find what was changed in one of the two only: code, headings, cells, lists and links."""

    def shape(name: str) -> list[object]:
        page = Page(ROOT / name)
        lines = [line for _, line in page.prose()]
        blocks = [block for block in page.blocks() if not block.hidden]
        return [
            [block.text for block in blocks if block.language != "mermaid"],
            [block.language for block in blocks],
            [line.split()[0] for line in lines if line.startswith("#")],
            [line.count("|") for line in lines if line.startswith("|")],
            sum(1 for line in lines if line.startswith("- ")),
            sorted(
                each for target in page.links() if (each := _page_of(page, target[1])) not in us
            ),
        ]

    us = {english, CHINESE[english], ""}
    assert shape(CHINESE[english]) == shape(english)


def test_the_address_of_the_documentation_is_written_twice_alike() -> None:
    """The package's metadata cannot take it from the module that the hints take it from."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    urls = [line.split(" = ") for line in setup["metadata"]["project_urls"].split("\n") if line]
    assert dict(urls)["Documentation"] == SITE
    assert all(url.startswith(SITE) for _, url in urls)


def test_the_two_commands_are_in_the_readme() -> None:
    """Hold the README to the Makefile."""
    readme = (ROOT / "README.md").read_text()
    makefile = Path(ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, re.M)
    assert 'make test STORES="sqlite"' in readme
