"""The translations: each text has one, and what is compiled is what is written."""

from __future__ import annotations

import ast
import gettext
import re
from pathlib import Path

import pytest

import django_distlock

PACKAGE = Path(django_distlock.__file__).parent
LANGUAGES = sorted(folder.name for folder in (PACKAGE / "locale").iterdir())
ENTRY = re.compile(r'^msgid "(.+)"\n(?:msgid_plural "(.+)"\n)?msgstr(?:\[0\])? "(.+)"$', re.M)


def in_code() -> set[str]:
    """Return the texts that the code marks by `_(...)` and `ngettext(...)`, in the singular."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("_", "ngettext"):
                found.add(ast.literal_eval(node.args[0]))
    return found


def in_templates() -> set[str]:
    """Return the texts of `{% translate %}` and `{% blocktranslate %}`, in the singular."""
    found = set()
    for path in PACKAGE.rglob("*.html"):
        text = path.read_text("utf-8")
        found |= {each for _, each in re.findall(r"""{% translate (["'])(.+?)\1""", text)}
        for block in re.findall(
            r"{% blocktranslate[^%]*%}(.*?){% (?:plural|endblocktranslate) %}", text, re.S
        ):
            found.add(re.sub(r"{{ (\w+) }}", r"%(\1)s", block.strip()))
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated_and_compiled(language: str) -> None:
    folder = PACKAGE / "locale" / language / "LC_MESSAGES"
    entries = ENTRY.findall((folder / "django.po").read_text("utf-8"))
    written = {entry[0]: entry for entry in entries}
    assert len(in_code()) >= 40
    assert len(in_templates()) >= 40
    assert set(written) == in_code() | in_templates()
    with (folder / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for text, plural, translated in written.values():
        if plural:
            assert compiled.ngettext(text, plural, 1) == translated
        else:
            assert compiled.gettext(text) == translated
