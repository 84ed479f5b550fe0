"""Run the Python examples of one page, in order and in one namespace.

``python -m tests.docs.run_page PAGE`` in an empty folder, which becomes the project's. The last
line that it prints says how many blocks it ran; an example that fails ends it with a traceback
that names the page's own lines.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import io
import os
import sys
from contextlib import redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.docs.pages import Block, Page

PROJECT = Path(__file__).parent / "project"


class ExampleError(Exception):
    """An example ran, and did not do what its page says."""


def main(path: Path) -> None:
    """Run the examples of the page at ``path``."""
    page = Page(path)
    sys.path[:0] = [str(Path.cwd()), str(PROJECT)]
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_settings"

    import django
    from django.core.management import call_command
    from django.db import connections

    django.setup()
    for alias in connections:
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    blocks = page.blocks()
    namespace: dict[str, Any] = {"__name__": "page"}
    count = 0
    for block, following in zip_longest(blocks, blocks[1:]):
        if block.language == "sql" and "run" in block.words:
            with connections["default"].cursor() as cursor:
                cursor.execute(block.text)
        if block.language != "python":
            continue
        count += 1
        if "parsed" in block.words:
            ast.parse("\n" * (block.line - 1) + block.text, str(page.path))
            continue
        if "settings" in block.words:
            _judge(page, block)
            continue
        said = _run(page, block, namespace)
        if following is not None and following.words == ("output",):
            _compare(page, following, said)
        sys.stdout.write(said)
    _nothing_left()
    sys.stdout.write(f"{count} examples ran\n")


def _run(page: Page, block: Block, namespace: dict[str, Any]) -> str:
    if block.file is not None:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.text, encoding="utf-8")
    # In place, so that a traceback names the line of the page.
    placed = "\n" * (block.line - 1) + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(placed, str(page.path), "exec", flags, dont_inherit=True)
    before = namespace.get("DISTLOCKS")
    said = io.StringIO()
    with redirect_stdout(said):
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, namespace))
        else:
            exec(code, namespace)
    if namespace.get("DISTLOCKS") is not before:
        _use(namespace)
    return said.getvalue()


def _judge(page: Page, block: Block) -> None:
    """Have the backends of settings judge their options, which asks no store."""
    from django.conf import settings
    from django.test import override_settings

    from django_distlock.handler import LockHandler

    namespace: dict[str, Any] = {"BASE_DIR": Path.cwd()}
    exec(compile("\n" * (block.line - 1) + block.text, str(page.path), "exec"), namespace)
    with override_settings(CACHES=namespace.get("CACHES", settings.CACHES)):
        LockHandler(namespace["DISTLOCKS"]).all()


def _use(namespace: dict[str, Any]) -> None:
    """Judge a settings example as the app does, and let the examples that follow run under it."""
    from django.db import connections
    from django.test import override_settings

    from django_distlock.checks import check_aliases, check_transactions
    from django_distlock.handler import LockHandler

    if unknown := set(namespace.get("DATABASES", ())) - set(connections):
        raise ExampleError(f"The example project has no databases {unknown}")
    if (apps := namespace.get("INSTALLED_APPS")) and "django_distlock" not in apps:
        raise ExampleError("INSTALLED_APPS without django_distlock")
    LockHandler(namespace["DISTLOCKS"]).all()
    override_settings(DISTLOCKS=namespace["DISTLOCKS"]).enable()
    if found := [*check_aliases(), *check_transactions()]:
        raise ExampleError(f"manage.py check says of this setting: {found}")


def _compare(page: Page, shown: Block, said: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(shown.text, said, flags):
        raise ExampleError(f"{page}:{shown.line} shows\n{shown.text}\nbut printed was\n{said}")


def _nothing_left() -> None:
    from django_distlock import locks

    if left := [info for each in locks.all() if each.shows_holders for info in each.held()]:
        raise ExampleError(f"The examples left locks held: {left}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
