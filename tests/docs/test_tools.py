"""The tests of the documentation can fail: each tool is shown a page that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.conftest import Run
from tests.docs.pages import Page, PageError


def page(folder: Path, text: str) -> Page:
    """Return a page of its own, outside of docs/."""
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return Page(path)


GOOD = """\
```python
from django_distlock import lock

with lock("x") as lease:
    print(lease.name, lease.fencing_token)
```

```text output
x ...
```

<!-- run
async with lock("y") as lease:
    lease.check()
-->

```python
DISTLOCKS = {"default": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"}}
```

```sql run
SELECT count(*) FROM distlock_lock
```

```python
from django_distlock import locks
print(type(locks["default"]).__name__)
```

```text output
LocMemBackend
```
"""

BAD = {
    "an example that raises": "```python\n1 / 0\n```\n",
    "a hidden assertion": "<!-- run\nassert False, 'hidden'\n-->\n",
    "other output": "```python\nprint('a')\n```\n\n```text output\nb\n```\n",
    "a coroutine that raises": "```python\nimport asyncio\nawait asyncio.sleep(0)\n1 / 0\n```\n",
    "syntax": "```python\nwith lock(:\n```\n",
    "a warning": "```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```\n",
    "a lock left held": "```python\nimport django_distlock as d\nx = d.lock('x').acquire()\n```\n",
    "an unknown setting": "```python\nDISTLOCKS = {'default': {'BACKEND': 'x', 'TLL': 3}}\n```\n",
    "a missing backend": "```python\nDISTLOCKS = {'default': {'BACKEND': 'no.such'}}\n```\n",
    "a setting that is warned of": (
        "```python\nDISTLOCKS = {'other': "
        "{'BACKEND': 'django_distlock.backends.dummy.DummyBackend'}}\n```\n"
    ),
    "wrong SQL": "```sql run\nSELECT nothing FROM nowhere\n```\n",
}


def test_a_good_page_runs(tmp_path: Path, run_page: Run) -> None:
    """Run what a page may contain, and count it."""
    done = run_page(page(tmp_path, GOOD))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("LocMemBackend\n4 examples ran\n")


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_page_fails(kind: str, tmp_path: Path, run_page: Run) -> None:
    """Fail at what follows a good example, too."""
    text = "```python\nprint('before')\n```\n\n" + BAD[kind]
    done = run_page(page(tmp_path, text))
    assert done.returncode != 0, done.stdout
    assert "examples ran" not in done.stdout


def test_a_failure_names_the_line_of_the_page(tmp_path: Path, run_page: Run) -> None:
    """Show the reader of a failed run where to look."""
    done = run_page(page(tmp_path, "# Title\n\nText.\n\n```python\nx = 1\nx / 0\n```\n"))
    assert 'page.md", line 7' in done.stderr
    assert "x / 0" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "```pyhton\nx\n```\n",
        "```\nx\n```\n",
        "- a list\n\n  ```python\n  x\n  ```\n",
        "```python\nx = 1\n",
        "<!-- run x = 1 -->\n",
    ],
)
def test_a_block_that_would_escape_is_refused(text: str, tmp_path: Path) -> None:
    """Let no block go unseen for the way in which it is written."""
    with pytest.raises(PageError):
        page(tmp_path, text).blocks()


def test_links_and_anchors(tmp_path: Path) -> None:
    """Find links over two lines, not in code; make anchors as GitHub does."""
    found = page(
        tmp_path,
        "# Use `lock()`, now!\n\n[a\nb](c.md#d) `[no](no.md)`\n\n"
        "```text\n[no](no.md)\n```\n\n![p](q.png)\n\n## lock\n\n### Lock\n",
    )
    assert found.links() == [(3, "c.md#d"), (10, "q.png")]
    assert found.anchors() == {"use-lock-now", "lock", "lock-1"}
