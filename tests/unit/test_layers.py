"""The layers: each module imports only from those below it, and importing loads no driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from .graph import PACKAGE, ROOT, Import, imports, modules

# Lowest first. A module imports only from layers below its own: not even from a neighbour.
LAYERS: list[set[str]] = [
    {
        "core.text",
        "core.clock",
        "core.descriptors",
        "core.threads",
        "core.system",
        "core.checking",
    },
    {"core.fork"},
    {"core.values"},
    {"exceptions", "signals", "core.backoff", "core.loops"},
    {"core.names", "core.durations", "core.holder", "core.worker", "core.flow"},
    {"core.registry", "core.members"},
    {"core.calls", "conf", "transactions", "core.cleaning", "fencing.fields"},
    {"backends.options"},
    {"http"},
    {"backends", "backends.base"},
    {"backends.flows"},
    {
        "backends.*",
        "core.watchdog",
        "metrics",
    },  # each store for itself: none knows another, but see BUILT_ON
    {"handler", "core.hold"},
    {"core.handle"},
    {"lease", "inspection"},
    {"current", "core.leaving"},
    {"decorators"},
    {"core.blocks", "fencing.querysets", "fencing.decorators", "rows"},
    {"core.acquisition"},
    {"lock", "core.several"},
    {"group", "leader"},
    {""},  # the package itself: the public names
    {
        "models",
        "checks",
        "apps",
        "migrations",
        "testing",
        "management",
        "versions",
        "contrib",
        "admin",
        "views",
        "commands",
        "history",
        "middleware",
    },
]
"""`transactions` is below the stores, because the lock table asks it whose transaction is open."""

BUILT_ON = {
    "version": {"table"},
    "row": {"table"},
    "advisory": {"row", "table"},
    "redlock": {"redis"},
}
"""Techniques that share another's table, connections and errors."""

FOLDERS = {"core", "fencing"}
"""Packages that import nothing themselves, with modules of several layers."""

PURE = {
    "core.text", "core.backoff", "core.values", "core.loops", "core.clock",
    "core.flow", "core.durations", "core.names", "core.cleaning",
    "core.members",
}  # fmt: skip
"""No Django: values, and algorithms that are told everything."""

INNER: dict[str, set[str]] = {
    # An app is loaded before its models are.
    "apps": {".checks", ".handler", ".history", ".versions.checks"},
    # There is none where the admin is not installed.
    "versions.checks": {"django.contrib.admin.sites", "django.contrib.admin.utils"},
    # It needs what is not on every system.
    "backends.table": {".backends.table.queue_file"},
    # The driver of the stores that speak HTTP.
    "http.framing": {"httptools"},
    "http": {"httptools"},
    # Needed only when its thread ends.
    "core.worker": {"django.db", "django.db.backends.base.base"},
    "backends.table.checks": {"sqlite3"},
    # Who has a request of the framework has imported it.
    "views.rest": {"rest_framework.exceptions"},
}
"""Imports inside functions, each with its reason; there are no others.

A store may import its driver inside a function (that is where it belongs), and the programs that
the contract suite starts as processes import what they need once Django is set up.
"""

DRIVERS = {
    "psycopg", "psycopg2", "MySQLdb", "pymysql", "sqlite3", "redis", "django_redis", "hiredis",
    "kazoo", "httptools", "requests", "celery", "etcd3", "consul", "prometheus_client",
    "opentelemetry", "health_check", "rest_framework",
}  # fmt: skip

KEEPERS = {("core.registry", ".core.hold"), ("core.watchdog", ".core.hold")}
"""They name the type of what they keep for the layer above them, for the type checker alone."""

ALL = list(imports())
KEPT = [each for each in ALL if each.typing and (each.importer, each.imported) in KEEPERS]
OURS = [each for each in ALL if each.imported.startswith(".") and each not in KEPT]


def store(module: str) -> str | None:
    """Return the store that a module belongs to, if any."""
    parts = module.split(".")
    of_one = (
        parts[0] == "backends" and len(parts) > 1 and parts[1] not in ("base", "flows", "options")
    )
    return parts[1] if of_one else None


def layer(module: str) -> int:
    """Return the number of a module's layer."""
    wanted = {module, module.split(".")[0]} if store(module) is None else {"backends.*"}
    if module.startswith("backends"):
        wanted.discard("backends" if module != "backends" else "")
    numbers = [number for number, names in enumerate(LAYERS) if names & wanted]
    assert len(numbers) == 1, f"place {module!r} in LAYERS"
    return numbers[0]


def show(found: list[Import]) -> list[str]:
    """Return imports as lines, for the message of a failing test."""
    return [f"{each.importer} imports {each.imported}" for each in found]


def one_unit(each: Import) -> bool:
    """Tell whether both ends belong to one store, or to another package of one idea."""
    importer, imported = each.importer, each.imported[1:]
    if store(importer) is not None:
        own = str(store(importer))
        return store(imported) in {own, *BUILT_ON.get(own, set())}
    packaged = layer(importer) == len(LAYERS) - 1 or importer.split(".")[0] == "http"
    return packaged and importer.split(".")[0] == imported.split(".")[0]


def test_every_module_has_its_layer() -> None:
    assert len(modules()) > 30
    for module in set(modules()) - FOLDERS:
        layer(module)
    assert {each.importer for each in ALL} & FOLDERS == set()


def test_each_module_imports_only_from_below() -> None:
    outermost = len(LAYERS) - 1
    wrong = [
        each
        for each in OURS
        if not each.inner
        and not one_unit(each)
        and not layer(each.imported[1:]) < layer(each.importer)
        # `checks` and `apps` are neighbours, and the tools that are shipped use them all.
        and not (layer(each.importer) == outermost == layer(each.imported[1:]))
    ]
    assert show(wrong) == []


def test_imports_inside_functions_go_by_name() -> None:
    found: dict[str, set[str]] = {}
    for each in ALL:
        if each.inner and each.importer.split(".")[0] != "testing":
            driver = each.imported.split(".")[0] in DRIVERS and store(each.importer) is not None
            if not driver or each.importer in INNER:
                found.setdefault(each.importer, set()).add(each.imported)
    assert {name: names for name, names in found.items() if names - INNER.get(name, set())} == {}
    assert set(INNER) <= set(found), "listed, but not there"


def test_imports_for_the_type_checker_go_downwards_too() -> None:
    assert len(KEPT) == len(KEEPERS), "listed, but not there"
    typed = [each for each in OURS if each.typing]
    assert show([each for each in typed if layer(each.imported[1:]) >= layer(each.importer)]) == []


def test_nothing_imports_the_outermost_layer() -> None:
    outermost = len(LAYERS) - 1
    wrong = [
        each
        for each in OURS
        if layer(each.imported[1:]) == outermost
        and layer(each.importer) != outermost
        and each.imported != ".testing"
    ]
    assert show(wrong) == []


def test_only_the_outermost_layer_imports_the_package_itself() -> None:
    wrong = [each for each in OURS if each.imported == "." and layer(each.importer) < 12]
    assert show(wrong) == []


def test_the_imports_make_no_circle() -> None:
    below: dict[str, set[str]] = {}
    for each in OURS:
        if not each.inner:
            below.setdefault(each.importer, set()).add(each.imported[1:])
    assert list(TopologicalSorter(below).static_order())


def test_no_store_knows_another() -> None:
    wrong = [
        each
        for each in OURS
        if store(each.importer) is not None
        and store(each.imported[1:]) is not None
        and not one_unit(each)
    ]
    assert show(wrong) == []


def test_pure_modules_know_no_django() -> None:
    outside = {"django", "asgiref"} | DRIVERS
    wrong = [
        each for each in ALL if each.importer in PURE and each.imported.split(".")[0] in outside
    ]
    assert show(wrong) == []


def test_no_driver_is_imported_at_the_top_of_a_module() -> None:
    wrong = [each for each in ALL if not each.inner and each.imported.split(".")[0] in DRIVERS]
    assert show([each for each in wrong if not each.importer.startswith("contrib.")]) == []


# -- importing it ----------------------------------------------------------------------------------

PROGRAM = """
import json, sys, threading
import django_distlock
from django.conf import settings
print(json.dumps({
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
    "ours": sorted(name for name in sys.modules if name.startswith("django_distlock.")),
    "configured": settings.configured,
    "threads": threading.active_count(),
    "children": [name for name in django_distlock.__all__ if not hasattr(django_distlock, name)],
}))
"""


@pytest.fixture(scope="module")
def fresh() -> dict[str, object]:
    """What a new interpreter has loaded after ``import django_distlock``."""
    environment = {key: value for key, value in os.environ.items() if "DJANGO" not in key}
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # coverage loads modules of its own
    environment["PYTHONPATH"] = str(ROOT.parent)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    facts: dict[str, object] = json.loads(done.stdout)
    return facts


def test_importing_loads_no_driver(fresh: dict[str, object]) -> None:
    loaded = fresh["modules"]
    assert isinstance(loaded, list)
    assert DRIVERS & set(loaded) == set()


def test_importing_needs_no_settings_and_starts_no_thread(fresh: dict[str, object]) -> None:
    assert fresh["configured"] is False
    assert fresh["threads"] == 1
    assert fresh["children"] == []


def test_importing_loads_no_store_and_nothing_of_the_outermost_layer(
    fresh: dict[str, object],
) -> None:
    loaded = fresh["ours"]
    assert isinstance(loaded, list)
    short = [name.removeprefix(f"{PACKAGE}.") for name in loaded]
    assert [name for name in short if store(name) is not None] == []
    assert [each for each in set(short) - FOLDERS if layer(each) == len(LAYERS) - 1] == []
