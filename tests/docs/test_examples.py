"""Every Python example of every page runs."""

from __future__ import annotations

import pytest

from tests.docs.conftest import Run
from tests.docs.pages import Page, pages

TUTORIAL = "docs/tutorial/first-lock.md"  # followed step by step in test_tutorial.py


def examples(page: Page) -> int:
    """Return how many blocks of Python a page has."""
    return sum(block.language == "python" for block in page.blocks())


CHINESE = "docs/zh/first-lock.md"  # has the same blocks, see test_pages.py
PAGES = [page for page in pages() if examples(page) and str(page) not in (TUTORIAL, CHINESE)]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_examples_of_a_page_run(page: Page, run_page: Run) -> None:
    """Run them in order, as a reader would who types them in."""
    done = run_page(page)
    assert done.returncode == 0, f"{page}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1] == f"{examples(page)} examples ran"
