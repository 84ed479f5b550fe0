"""The reference is complete, and says nothing of what is not there."""

from __future__ import annotations

import argparse
import dataclasses
import re
from dataclasses import is_dataclass

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.dispatch import Signal

import django_distlock
from django_distlock import (
    Holder,
    Leader,
    Lease,
    Leases,
    Lock,
    LockError,
    LockGroup,
    LockInfo,
    exceptions,
    signals,
    testing,
)
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.dummy import DummyBackend
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.backends.row import RowBackend
from django_distlock.backends.table import TableBackend
from django_distlock.conf import IN_TRANSACTION, AliasConf
from django_distlock.core import checking
from django_distlock.core.checking import SITE
from django_distlock.testing import pytest_plugin
from tests.docs.pages import ROOT, Page

PACKAGE = ROOT / "django_distlock"


def reference(name: str) -> Page:
    """Return a page of the reference."""
    return Page(ROOT / "docs" / "reference" / f"{name}.md")


API = ("lock", "lease", "modes", "fencing", "backend-api")
"""The pages of what a program imports."""


def api() -> str:
    """Return the text of those pages."""
    return "\n".join(reference(name).text for name in API)


def table(page: Page, heading: str) -> list[list[str]]:
    """Return the cells of the table right under a heading, without its first two lines."""
    below = re.split(rf"^#+ {re.escape(heading)}$", page.text, flags=re.M)[1]
    section = re.split(r"^#", below, flags=re.M)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", django_distlock.__all__)
def test_every_public_name_is_explained(name: str) -> None:
    """Find each name of ``__all__`` in the API or among the errors."""
    headings = [heading for page in (*API, "errors") for heading in reference(page).headings()]
    assert name in {heading.strip("`") for heading in headings}


def test_the_test_kit_is_explained() -> None:
    """Find each name of the kit, each fixture, and each public member of its classes."""
    page = reference("testing")
    for name in testing.__all__:
        assert re.search(rf"^(await )?{name}\(", page.text, re.M), name
        thing = getattr(testing, name)
        for member in vars(thing) if isinstance(thing, type) else ():
            if not member.startswith("_") and member != "switch_on":
                assert re.search(rf"^(await )?{name}\.{member}\(", page.text, re.M), member
    shown = {name.strip("`") for name, _ in table(page, "pytest")}
    assert shown == set(pytest_plugin.__all__)
    assert f"pytest.mark.{pytest_plugin.MARK}(" in page.text


@pytest.mark.parametrize(
    "owner", [Lock, LockGroup, Lease, Leases, Leader, LockInfo, Holder], ids=str
)
def test_every_public_member_is_explained(owner: type) -> None:
    """Find each method, property and field."""
    text = api().replace("await ", "")
    fields = {field.name for field in dataclasses.fields(owner)} if is_dataclass(owner) else set()
    fields = {name for name in fields if not name.startswith("_")}
    members = {name for name in dir(owner) if not name.startswith("_")} - fields
    members -= set(dir(tuple))
    # A group's methods are those of a Lock, and said to be.
    shown = "Lock" if owner is LockGroup else owner.__name__
    assert {name for name in members if f"#### `{shown}.{name}`\n" not in text} == set()
    assert {name for name in fields if not re.search(rf"\b{name}\b", text)} == set()


def test_the_tools_of_a_backend_are_explained() -> None:
    """Find what a backend has for people in the API, and its primitives in the how-to."""
    howto = (ROOT / "docs" / "howto" / "write-a-backend.md").read_text(encoding="utf-8")
    primitives = [
        name
        for name, thing in vars(BaseLockBackend).items()
        if "NotImplementedError" in getattr(getattr(thing, "__code__", None), "co_names", ())
    ]
    assert len(primitives) == 5
    assert {name for name in primitives if f"`{name}(" not in howto} == set()
    tools = ("held", "aheld", "force_release", "aforce_release")
    assert {name for name in tools if f"BaseLockBackend.{name}(" not in api()} == set()


def test_every_setting_is_explained_with_its_default() -> None:
    """Compare the table of keys with the class that holds them."""
    wanted = {}
    for field in dataclasses.fields(AliasConf):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        required = default is dataclasses.MISSING
        wanted[f"`{field.name.upper()}`"] = "required" if required else f"`{default!r}`"
    shown = {key: default for key, default, _ in table(reference("settings"), "Keys")}
    assert shown == wanted


def test_every_value_of_in_transaction_is_explained() -> None:
    """Compare the table of values."""
    shown = [value for value, *_ in table(reference("settings"), "`IN_TRANSACTION`")]
    assert shown == [f'`"{value}"`' for value in IN_TRANSACTION]


def test_every_option_is_explained() -> None:
    """Compare the table of OPTIONS with what the backends take."""
    shown = {option.strip("`") for option, *_ in table(reference("settings"), "`OPTIONS`")}
    backends = (TableBackend, RowBackend, LocMemBackend, DummyBackend)
    assert shown == {option for backend in backends for option in backend.options}


def test_every_error_is_explained() -> None:
    """Find each class, also those that are not exported, and no other."""
    classes = {
        name
        for name, thing in vars(exceptions).items()
        if isinstance(thing, type) and issubclass(thing, LockError | ImproperlyConfigured)
    }
    classes.discard("ImproperlyConfigured")  # Django's own
    page = reference("errors")
    assert {name for name in classes if f"`{name}`" not in page.text} == set()
    assert {heading.strip("`") for heading in page.headings()} - {"Errors"} <= classes


def test_every_signal_is_explained_with_its_arguments() -> None:
    """Compare the table with the signals, and its arguments with the module's docstring."""
    shown = {name.strip("`"): said for name, _, said in table(reference("signals"), "Signals")}
    assert set(shown) == {n for n, thing in vars(signals).items() if isinstance(thing, Signal)}
    assert set(shown) == set(signals.__all__)
    for line in (signals.__doc__ or "").splitlines():
        if found := re.match(r"``(\w+)``\s+(.*)", line):
            arguments = re.findall(r"``(\w+)``", found[2])
            assert arguments
            assert re.findall(r"`(\w+)`", shown[found[1]])[: len(arguments)] == arguments


def test_every_check_is_explained() -> None:
    """Compare the headings with the ids in the source, both ways."""
    used = {
        identity
        for path in PACKAGE.rglob("*.py")
        for identity in re.findall(r'"(distlock\.[EWI]\d+)"', path.read_text(encoding="utf-8"))
    }
    page = reference("checks")
    explained = {heading for heading in page.headings() if heading.startswith("distlock.")}
    assert used
    assert explained == used
    for identity in explained:
        section = page.text.split(f"### {identity}\n")[1].split("\n#")[0]
        assert "*Remedy:*" in section, identity


def test_every_hint_leads_to_its_section() -> None:
    """Follow the address at the end of a hint, as the site has its pages and anchors."""
    for message in (
        checking.error("x", hint="Do.", id="distlock.E001"),
        checking.warning("x", hint="Do.", id="distlock.W007"),
        checking.info("x", hint="Do.", id="distlock.I001"),
    ):
        said, _, address = str(message.hint).partition(" See ")
        path, _, anchor = address.removeprefix(SITE).partition(".html#")
        headings = (ROOT / "docs" / f"{path}.md").read_text(encoding="utf-8")
        assert said == "Do."
        assert f"### {message.id}\n" in headings
        assert anchor == str(message.id).lower().replace(".", "-")
    made = re.compile(r"(?<!checking\.)\b(Error|Warning|Info|CheckMessage)\(")
    by_hand = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.name != "checking.py"
        and "core.checks import" in (text := path.read_text(encoding="utf-8"))
        and made.search(text)
    ]
    assert by_hand == [], "made without the address of their sections"
    local = [path for path in PACKAGE.rglob("*.py") if re.search(r"\bdocs/\w", path.read_text())]
    assert local == [], "the documentation is not installed"


@pytest.mark.parametrize("name", ["cleanlocks", "locks", "runlocked"])
def test_every_option_of_a_command_is_explained(name: str) -> None:
    """But for those that all commands of Django have."""
    text = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")

    def options(parser: argparse.ArgumentParser) -> set[str]:
        found: set[str] = set()
        for action in parser._actions:
            found.update(each for each in action.option_strings if each.startswith("--"))
            if isinstance(action, argparse._SubParsersAction):
                found.update(*map(options, action.choices.values()))
        return found

    command = load_command_class("django_distlock", name)
    ours = options(command.create_parser("manage.py", name))
    ours -= options(BaseCommand().create_parser("manage.py", name))
    assert ours
    assert {each for each in ours if f"`{each}" not in text} == set()


def test_every_logger_is_explained() -> None:
    """Compare the table of loggers with the source."""
    used = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'getLogger\("([\w.]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert {name.strip("`") for name, _ in table(reference("signals"), "Logging")} == used
