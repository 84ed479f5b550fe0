#!/usr/bin/env python
"""Fill in the parts of the documentation that the code knows best.

A page says where: everything between ``<!-- generated: KIND ... -->`` and ``<!-- end -->`` is
written by this script, from flags, signatures, docstrings and statements.

    python docs/generate.py            writes the pages
    python docs/generate.py --check    writes nothing; exit code 1 when a page is out of date
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import django  # noqa: E402
import figures as measured  # noqa: E402
from django.conf import settings  # noqa: E402
from django.utils.module_loading import import_string  # noqa: E402
from figures import row as _row  # noqa: E402
from signatures import docstring, entry  # noqa: E402

from django_distlock import exceptions  # noqa: E402
from django_distlock.backends.advisory import AdvisoryBackend  # noqa: E402
from django_distlock.backends.advisory import mysql as get_lock  # noqa: E402
from django_distlock.backends.advisory import postgresql as pg_advisory  # noqa: E402
from django_distlock.backends.base import BaseLockBackend  # noqa: E402
from django_distlock.backends.consul import ConsulBackend  # noqa: E402
from django_distlock.backends.dummy import DummyBackend  # noqa: E402
from django_distlock.backends.etcd import EtcdBackend  # noqa: E402
from django_distlock.backends.locmem import LocMemBackend  # noqa: E402
from django_distlock.backends.redis import RedisBackend  # noqa: E402
from django_distlock.backends.redlock import RedlockBackend  # noqa: E402
from django_distlock.backends.row import RowBackend, mariadb, mysql, postgresql  # noqa: E402
from django_distlock.backends.table import TableBackend  # noqa: E402
from django_distlock.backends.table import sql as table_sql  # noqa: E402
from django_distlock.backends.version import TAKES, VersionBackend  # noqa: E402
from django_distlock.backends.zookeeper import ZooKeeperBackend  # noqa: E402
from django_distlock.contrib import (  # noqa: E402
    celery,  # noqa: F401 - found by their paths
    health_check,  # noqa: F401
    opentelemetry,  # noqa: F401
    prometheus,  # noqa: F401
)

BACKENDS: tuple[type[BaseLockBackend], ...] = (
    TableBackend,
    VersionBackend,
    RowBackend,
    AdvisoryBackend,
    RedisBackend,
    RedlockBackend,
    EtcdBackend,
    ConsulBackend,
    ZooKeeperBackend,
    LocMemBackend,
    DummyBackend,
)
DIALECTS = {
    "SQLite": (table_sql.SQLITE, "%(now)s"),
    "PostgreSQL": (table_sql.POSTGRESQL, table_sql.PG_NOW),
    "MariaDB": (table_sql.MARIADB, table_sql.MY_NOW),
    "MySQL": (table_sql.MYSQL, table_sql.MY_NOW),
}
STATEMENTS = {
    "acquire": "Acquire",
    "create": "Acquire a name that has no row (else nothing is done, and acquire asked again)",
    "look": "Who holds it (asked by a loser)",
    "renew": "Renew",
    "release": "Release",
    "inspect": "Inspect",
    "scan": "Scan",
    "expired": "Leases that ran out and were not released",
    "see": "Look at a lock that several may hold",
    "make": "Make its row; it is free, and then competed for",
    "swap": "Write who holds it, if its row is as it was seen",
    "page": "Look at a batch to clean",
    "remove": "Clean it (`{keys}` are those that were idle)",
}
SWAP_STATEMENTS = {
    "see": "Look",
    "take": "Take a row that is free, if it is as it was seen",
    "make": "Make the row of a name never seen; it is free, and then competed for as any other",
}
ROWS: dict[str, tuple[Any, str, dict[str, str]]] = {
    "PostgreSQL": (
        postgresql,
        table_sql.PG_NOW,
        {
            "SET_UP": "A connection of our own is told once; behind a pooler, in each transaction",
            "NOTE": "Say what the session is about, before it asks, in a transaction of its own",
            "LOCK": "Lock the row if it is free, and draw the token; in the same round trip",
            "WAIT": "Wait for the row, then draw the token",
            "MAKE": "Make the row of a name never seen by this process",
            "HELD": "Who holds what",
        },
    ),
    "MariaDB": (
        mariadb,
        table_sql.MY_NOW,
        {
            "LIMITS": "Limit being idle, when a session has another ttl than before",
            "LOCK": "Lock the row if it is free, and draw the token",
            "WAIT": "After another `START TRANSACTION`: wait for the row, then draw the token",
            "FREE": "Release, followed by `COMMIT`",
            "MAKE": "Make the row of a name never seen by this process, if it is not there",
            "HOLDERS": "Who holds what, read at READ UNCOMMITTED",
        },
    ),
    "MySQL": (
        mysql,
        table_sql.MY_NOW,
        {
            "LIMITS": "Limit being idle, when a session has another ttl than before",
            "LOCK": "Lock the row if it is free, and draw the token; in the same round trip",
            "WAIT": "After another `START TRANSACTION`: wait for the row, then draw the token",
            "MAKE": "Make the row of a name never seen by this process, under a `GET_LOCK()`",
        },
    ),
}

ADVISORY: dict[str, tuple[Any, str, dict[str, str]]] = {
    "PostgreSQL": (
        pg_advisory,
        table_sql.PG_NOW,
        {
            "SET_UP": "A session is told once",
            "TRY": "Take the lock if it is free, and draw the token",
            "TOKEN": "Draw the token, raising the sequence if it lags behind the clock",
            "WAIT": "Wait for the lock, then draw the token",
            "JOIN": "Share a lock that the session shares already, unless a writer waits for it",
            "DOWNGRADE": "Share what the session holds alone",
            "UNLOCK": "Release",
            "LOOK": "Keep the session, and ask which of its locks others want released",
            "HOLDER": "Who holds a lock",
        },
    ),
    "MariaDB and MySQL": (
        get_lock,
        table_sql.MY_NOW,
        {
            "TRY": "Take the lock if it is free, and draw the token",
            "WAIT": "Wait for the lock, then draw the token",
            "UNLOCK": "Release",
            "LOOK": "Keep the session, and ask which of its locks others want released",
            "HOLDER": "Who holds a lock",
        },
    ),
}

if not settings.configured:  # some modules define models
    settings.configure(INSTALLED_APPS=["django_distlock"])
    django.setup()
import django_distlock.contrib.rest_framework  # noqa: E402, F401

_PART = re.compile(
    r"(?P<begin><!-- generated: (?P<kind>\w+) ?(?P<words>[^>]*?) -->\n).*?(?P<end><!-- end -->)",
    re.DOTALL,
)


def flags(*_: str) -> str:
    """Return the table of the backends and their flags."""
    rows: list[tuple[str, Callable[[type[BaseLockBackend]], str]]] = [
        ("`scope`", lambda b: b.scope),
        ("`exclusive`", lambda b: _yes(b.exclusive)),
        ("`supports_fencing`", lambda b: _yes(b.supports_fencing)),
        ("`fair`", lambda b: _yes(b.fair)),
        ("`notifies`", lambda b: _yes(b.notifies)),
        ("`counts_waiters`", lambda b: _yes(b.counts_waiters)),
        ("`cleans`", lambda b: _yes(b.cleans)),
        ("`native_async`", lambda b: _yes(b.native_async)),
        ("`never_blocks`", lambda b: _yes(b.never_blocks)),
        ("`thread_sensitive`", lambda b: _yes(b.thread_sensitive)),
        ("`transferable`", lambda b: _yes(b.transferable)),
        ("`shows_holders`", lambda b: _yes(b.shows_holders)),
        ("`force_releases`", lambda b: _yes(b.force_releases)),
        ("`supports_shared`", lambda b: _yes(b.supports_shared)),
        ("`supports_limit`", lambda b: _yes(b.supports_limit)),
        ("`queues`", lambda b: _yes(b.queues)),
        ("`at_once`", lambda b: f"{b.at_once}"),
        ("`min_attempt_timeout` (s)", lambda b: f"{b.min_attempt_timeout:g}"),
        ("`queue_limit` (s)", lambda b: f"{b.queue_limit:g}"),
        ("`poll` (s)", lambda b: f"{b.poll[0]:g} to {b.poll[1]:g}"),
        ("`grace` (s)", lambda b: f"{b.grace:g}"),
        ("`longest_ttl` (s)", lambda b: f"{b.longest_ttl:,.0f}"),
        ("`OPTIONS`", lambda b: ", ".join(f"`{name}`" for name in b.options)),
    ]
    lines = [_row("", *(f"`{backend.__name__}`" for backend in BACKENDS))]
    lines.append(_row("---", *("---" for _ in BACKENDS)))
    lines += [_row(name, *(show(backend) for backend in BACKENDS)) for name, show in rows]
    return "\n".join(lines)


def sql(*_: str) -> str:
    """Return every statement; those that are the same in all dialects once."""
    shown = {
        database: {name: _shown(getattr(dialect, name), now) for name in STATEMENTS}
        for database, (dialect, now) in DIALECTS.items()
    }
    first, *others = shown.values()
    common = {name for name in STATEMENTS if all(o[name] == first[name] for o in others)}
    parts = ["`<now>` is"]
    parts.append("\n".join(f"- on {database}: `{now}`" for database, (_, now) in DIALECTS.items()))
    for database, texts in [("All of them", first), *shown.items()]:
        parts.append(f"### {database}")
        for name, title in STATEMENTS.items():
            if texts[name] and (name in common) is (database == "All of them"):
                parts.append(f"{title}:\n\n```sql\n{texts[name]}\n```")
    return "\n\n".join(parts)


def swaps(*_: str) -> str:
    """Return the statements of the version backend: look and take, and how a row is made."""
    shown = {}
    for dialect, taking in TAKES:
        database, now = next((d, now) for d, (text, now) in DIALECTS.items() if text is dialect)
        texts = {"see": dialect.see, "take": taking.take, "make": dialect.make}
        shown[database] = {name: _shown(text, now) for name, text in texts.items()}
    parts = []
    for name, title in SWAP_STATEMENTS.items():
        by_text: dict[str, list[str]] = {}
        for database, texts in shown.items():
            by_text.setdefault(texts[name], []).append(database)
        for text, databases in by_text.items():
            where = "" if len(by_text) == 1 else f", on {' and '.join(databases)}"
            parts.append(f"{title}{where}:\n\n```sql\n{text}\n```")
    return "\n\n".join(parts)


def rows(*_: str) -> str:
    """Return the statements of the row backend."""
    return _of_modules("Row locks", ROWS)


def advisory(*_: str) -> str:
    """Return the statements of the advisory backend."""
    return _of_modules("Advisory locks", ADVISORY)


def _of_modules(what: str, databases: dict[str, tuple[Any, str, dict[str, str]]]) -> str:
    parts = []
    for database, (module, now, statements) in databases.items():
        parts.append(f"#### {what} on {database}")
        for name, title in statements.items():
            text = getattr(module, name)
            text = text if isinstance(text, str) else ";\n".join(map(str.strip, text))
            parts.append(f"{title}:\n\n```sql\n{_shown(text, now)}\n```")
    return "\n\n".join(parts)


def proof(*_: str) -> str:
    """Return what the last kept `make soak` saw: a row a history, a mode, and a kind of fault."""
    texts = (DOCS / "explanation" / "proof.jsonl").read_text().splitlines()
    runs = sorted(map(json.loads, texts), key=lambda run: str(run["on"]))
    keys = ("calls", "grants", "losses", "refused", "violations")
    titles = ("no two holders", "faults", "calls", "grants", "lost", "stale writes", "violations")
    lines = [_row("on", *titles), _row(*["---"] * 8)]
    faults: dict[str, dict[str, int]] = {}
    for run in runs:
        for kind, times in run["faults"].items():
            faults.setdefault(kind, {})[run["on"]] = times
        counts = [sum(run["faults"].values()), *(run[key] for key in keys)]
        promised = "promised" if run["exclusive"] else "not promised"
        lines.append(_row(run["on"], promised, *(f"{count:,}" for count in counts)))
    totals = [sum(sum(run["faults"].values()) for run in runs)]
    totals += [sum(run[key] for run in runs) for key in keys]
    lines.append(_row("**all**", "", *(f"**{total:,}**" for total in totals)))
    modes: Counter[str] = sum((Counter(run["modes"]) for run in runs), Counter())
    lines += ["", _row("mode", "calls"), _row("---", "---")]
    lines += [_row(mode, f"{count:,}") for mode, count in sorted(modes.items())]
    lines += ["", _row("fault", "times", "on"), _row(*["---"] * 3)]
    for kind, on in sorted(faults.items()):
        where = "all" if len(on) == len(runs) else ", ".join(sorted(on))
        lines.append(_row(kind, f"{sum(on.values()):,}", where))
    return "\n".join(lines)


def tree(*_: str) -> str:
    """Return the tree of errors, which stands in the module's docstring."""
    lines = (inspect.getdoc(exceptions) or "").splitlines()
    shown = [line[4:] for line in lines if line.startswith("    ")]
    return "```text\n" + "\n".join(shown) + "\n```"


def doc(*paths: str) -> str:
    """Return docstrings alone."""
    return "\n\n".join(docstring(import_string(f"django_distlock.{path}")) for path in paths)


def api(*paths: str) -> str:
    """Return signature and docstring of each function, class or ``module.Class.member``."""
    return "\n\n".join(map(entry, paths))


KINDS: dict[str, Callable[..., str]] = {
    "flags": flags,
    "sql": sql,
    "swaps": swaps,
    "rows": rows,
    "advisory": advisory,
    "tree": tree,
    "doc": doc,
    "api": api,
    "proof": proof,
    **measured.KINDS,
}


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _shown(text: str, now: str) -> str:
    """Return a statement with the clock by its name, one clause a line."""
    text = text.strip().replace(now, "<now>")
    return text if "\n" in text else re.sub(r"(?<!DELETE) (?=FROM |WHERE |ORDER BY )", "\n", text)


def rendered(text: str) -> str:
    """Return a page's text with the generated parts as they should be."""

    def part(match: re.Match[str]) -> str:
        made = KINDS[match["kind"]](*match["words"].split())
        return f"{match['begin']}\n{made}\n\n{match['end']}"

    return _PART.sub(part, text)


def stale(folder: Path) -> dict[Path, str]:
    """Return the pages under ``folder``, and READMEs beside it, that are out of date, made new."""
    found = {}
    for page in sorted([*folder.rglob("*.md"), *folder.parent.glob("README*.md")]):
        text = page.read_text(encoding="utf-8")
        if (wanted := rendered(text)) != text:
            found[page] = wanted
    return found


def main(arguments: list[str]) -> int:
    """Write or check the pages, and return the exit code."""
    check = arguments == ["--check"]
    if arguments and not check:
        sys.stderr.write(__doc__ or "")
        return 2
    pages = stale(DOCS)
    for page, wanted in pages.items():
        said = "out of date" if check else "written"
        sys.stdout.write(f"{said}: {page.relative_to(DOCS.parent)}\n")
        if not check:
            page.write_text(wanted, encoding="utf-8")
    return 1 if check and pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
