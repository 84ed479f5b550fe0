"""Measure locks beside the bare statements and beside other libraries.

    python -m benchmarks [--stores sqlite,redis] [--backends row] [--kinds ours,baseline]
                         [--only cycles,handoff] [--rounds 5] [--quick] [--json out.json]
                         [--plots FOLDER]
    python -m benchmarks --from out.json --plots FOLDER

Prints a table for each store and measurement, and the targets with what was reached. It starts
private servers of its own; those of the databases wait for the disk at each commit. Plots are
drawn at the end, or later from the JSON of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .adapter import Backend, Kind
from .adapters import adapters
from .bench import GROWTH_LEASES, Bench, Row
from .measures import MEASURES
from .plots import PlotError, draw, get_ready, load
from .preload import preload
from .processes import in_child
from .report import report
from .savers import absent_savers, savers
from .stores import STORES, set_up_django
from .targets import Verdict, judge

BACKENDS: tuple[Backend, ...] = (
    "table",
    "row",
    "advisory",
    "version",
    "redis",
    "redlock",
    "etcd",
    "consul",
    "zookeeper",
)
KINDS: tuple[Kind, ...] = ("ours", "baseline", "alternative")
AT_ONCE = 3
"""Stores of a quick run at a time."""
QUICK: dict[str, Any] = {
    "rounds": 3,
    "warm_up": 20,
    "slice": 0.03,
    "handoff": 1.0,
    "handoff_rounds": 1,
    "waiters": (2, 4),
    "fairness": 0.3,
    "several": 0.3,
    "limits": (1, 2),
    "held": 300,
    "attempts": 100,
    "renewed": 300,
    "renewing": 3.0,
    "ttl": 2.0,
    "growth_waiters": (2, 8),
    "growth_keys": (1, 100),
    "growth_leases": (1, 300),
    "growth_renewing": 1.5,
}


_Answer = tuple[list[Row], list[str]]  # what was measured, and what failed
_Absent = dict[str, list[str]]  # what is not installed, and the modules that it needs
_Measured = tuple[list[Row], list[str], _Absent]


def main() -> None:
    """Run the benchmark from the command line."""
    options = _options()
    try:
        if options.plots:
            get_ready(options.plots)
        if options.saved:
            _draw(load(options.saved), options.plots)
            return
    except PlotError as error:
        sys.exit(str(error))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = QUICK if options.quick else {}
    if options.rounds:
        settings = {**settings, "rounds": options.rounds}
    if options.leases:
        fewer = [each for each in GROWTH_LEASES if each < options.leases]
        most = {"renewed": options.leases, "growth_leases": (*fewer, options.leases)}
        settings = {**settings, **most}
    about = _machine() | {"quick": options.quick}
    rows: list[Row] = []
    errors: list[str] = []
    absent: dict[str, _Absent] = {}
    run, verdicts = _judged(about, rows, absent)
    for name, (more, failed, without) in _measure_all(options, settings):
        rows, errors, absent[name] = rows + more, errors + failed, without
        about["load_after"] = os.getloadavg()
        run, verdicts = _judged(about, rows, absent)
        if options.json:
            # After each store: whoever ends a run of an hour keeps what it has measured.
            options.json.write_text(json.dumps(run, indent=2) + "\n")
    print(f"{about['machine']}; load {about['load_before'][0]:.1f} to {about['load_after'][0]:.1f}")
    print(about["versions"])
    if about["load_before"][0] > 0.5:
        print("The machine was busy. Of what waits for the disk not even the ratios mean much.")
    print()
    print(report(rows, verdicts))
    if options.plots:
        try:
            _draw(run, options.plots)
        except PlotError as error:
            errors.append(str(error))
    if errors:
        sys.exit("\n".join(["FAILED", *errors]))


def _judged(
    about: dict[str, Any], rows: list[Row], absent: dict[str, _Absent]
) -> tuple[dict[str, Any], list[Verdict]]:
    """Return what the JSON of a run holds, and its targets with what was reached."""
    verdicts = judge(rows, absent)
    targets = [
        {"store": v.store, "what": v.what, "wanted": f"{v.sign} {v.wanted:g}", "got": v.got,
         "reached": v.reached}
        for v in verdicts
    ]  # fmt: skip
    return {"about": about, "results": rows, "targets": targets}, verdicts


def _draw(run: Any, folder: Path) -> None:
    paths = draw(run, folder)
    for path in paths:
        print(path)
    if not paths:
        print("no plots: neither cycles beside a baseline, hand-offs nor growth", file=sys.stderr)


def _measure_all(
    options: argparse.Namespace, settings: dict[str, Any]
) -> Iterator[tuple[str, _Measured]]:
    """Measure one store after the other, but for a quick run, in which figures do not count."""
    one = partial(_measure, options=options, settings=settings)
    if not options.quick:
        yield from ((name, one(name)) for name in options.stores)
        return
    with ProcessPoolExecutor(AT_ONCE, get_context("fork")) as pool:
        yield from zip(options.stores, pool.map(one, options.stores), strict=True)


def _measure(name: str, options: argparse.Namespace, settings: dict[str, Any]) -> _Measured:
    store = STORES[name]()
    usable, absent = adapters(store.name, options.backends, options.kinds)
    if store.has_tables and "save" in options.only:
        absent |= absent_savers()
    for library, modules in absent.items():
        print(f"left out on {name}: {library}: needs {modules}", file=sys.stderr)
    try:
        store.start()
        bench = Bench(store=store, adapters=usable, **settings)
        # Django is set up once in a process, so each store has one.
        return *in_child(_in_store_process, bench, options.only), absent
    finally:
        store.stop()


def _in_store_process(pipe: Connection, bench: Bench, measures: list[str]) -> _Answer:
    tables = savers() if bench.store.has_tables else []
    needed = [each.apps for each in bench.adapters] + [each.apps for each in tables]
    set_up_django(bench.store, list(dict.fromkeys(chain(*needed))))
    preload(bench.adapters)
    rows, errors = [], []
    for measure in measures:
        try:
            rows += MEASURES[measure](bench)
        except Exception:  # noqa: BLE001 - what was measured is shown, then the run fails
            errors.append(f"{bench.store.name}, {measure}:\n{traceback.format_exc()}")
    return rows, errors


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--stores", type=_words(STORES), default=list(STORES))
    parser.add_argument("--backends", type=_words(BACKENDS), default=list(BACKENDS))
    parser.add_argument("--kinds", type=_words(KINDS), default=list(KINDS))
    parser.add_argument("--only", type=_words(MEASURES), default=list(MEASURES))
    parser.add_argument("--rounds", type=int, help="of cycles (11)")
    parser.add_argument("--leases", type=int, help="the most that the watchdog renews (50000)")
    parser.add_argument("--quick", action="store_true", help="see whether it runs; no figures")
    parser.add_argument("--json", type=Path, help="the file to write all figures to")
    parser.add_argument("--plots", type=Path, help="the folder to draw plots into (PNG and SVG)")
    parser.add_argument(
        "--from", type=Path, dest="saved", help="draw what --json has written; measure nothing"
    )
    options = parser.parse_args()
    if options.only == ["engine"]:
        options.stores = ["sqlite"]  # there is no store in it
    if options.saved and not options.plots:
        parser.error("--from needs --plots")
    return options


def _words(known: Iterable[str]) -> Any:
    def words(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := sorted(set(chosen) - set(known)):
            raise argparse.ArgumentTypeError(f"{unknown}; known are {list(known)}")
        return [word for word in known if word in chosen]

    return words


def _machine() -> dict[str, Any]:
    import django

    cores = len(os.sched_getaffinity(0))
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
    )  # fmt: skip
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision.stdout.strip(),
        "machine": f"{cores} cores, {platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, Django {django.__version__}",
        "load_before": os.getloadavg(),
    }


if __name__ == "__main__":
    main()
