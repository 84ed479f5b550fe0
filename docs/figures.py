"""The tables of the documentation that are made from the kept run of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "row"]

Row = dict[str, Any]

RUN = Path(__file__).resolve().parent / "explanation" / "figures.json"
TITLES = {
    "en": (
        "store",
        "technique",
        "acquire, release",
        "the fastest of the others",
        "hand-off, p50",
    ),
    "zh": ("存储", "技术", "获取并释放", "其他方案中最快的", "交接 p50"),
}
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}
NAMES |= {"redis": "Redis", "etcd": "etcd", "consul": "Consul", "zookeeper": "ZooKeeper"}
NAMES |= {"redlock": "Redlock, five servers"}
LEVEL = 1.02  # how many times as much is no difference
SHARED = ("django-pglock, shared", "kazoo ReadLock")
SAVE = "VersionedModel.save()"


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def _table(*titles: str) -> list[str]:
    return [row(*titles), row(*["---"] * len(titles))]


class _Run:
    """The rows of the kept run, by what is asked of them."""

    def __init__(self) -> None:
        self.rows: list[Row] = json.loads(RUN.read_text())["results"]
        cycles = [each for each in self.rows if each["measure"] == "cycles"]
        self.techniques = list(dict.fromkeys((each["store"], each["backend"]) for each in cycles))
        self._backend = {(each["store"], each["adapter"]): each["backend"] for each in cycles}

    def of(self, measure: str, store: str, backend: str, **facts: object) -> list[Row]:
        """Return the rows of a measure, of one technique."""
        return [
            each
            for each in self.rows
            if each["measure"] == measure
            and each["store"] == store
            and each.get("backend", self._backend.get((store, each["adapter"]))) == backend
            and all(each.get(key) == value for key, value in facts.items())
        ]

    def ours(self, rows: list[Row], mode: str = "") -> Row | None:
        """Return the row of our own lock, in a mode of it."""
        for each in rows:
            name, _, more = each["adapter"].partition(", ")
            if each["kind"] == "ours" and more == mode and name.startswith("django-distlock"):
                return each
        return None

    def others(self, store: str, backend: str, mode: str = "") -> set[str]:
        """Return the libraries that can do the same."""
        found = [each for each in self.rows if each["kind"] == "alternative"]
        mine = [each for each in found if (each["store"], each.get("backend")) == (store, backend)]
        if mode == "shared":
            return {each["adapter"] for each in mine} & set(SHARED)
        if mode:
            several = [each for each in mine if each["measure"] == "several"]
            return {each["adapter"] for each in several if each["at_once"] != 1}
        return {each["adapter"] for each in mine if each["measure"] == "handoff"}


# -- ours, and the fastest of the others -----------------------------------------------------------


def figures(language: str = "en") -> str:
    """Return what the run measured: ours beside the fastest library of the technique."""
    run = _Run()
    titles = TITLES[language]
    lines = _table(*titles, titles[3])
    for store, backend in run.techniques:
        others = run.others(store, backend)
        cycles = run.of("cycles", store, backend)
        handed = run.of("handoff", store, backend, waiters=8)
        cells = [
            *_beside(run, cycles, others, "microseconds"),
            *_beside(run, handed, others, "p50_us"),
        ]
        lines.append(row(NAMES[store], backend, *cells))
    return "\n".join(lines)


def _beside(run: _Run, rows: list[Row], others: set[str], column: str) -> tuple[str, str]:
    """Return our figure, and the best one of other libraries, with the ratio to ours."""
    ours = run.ours(rows)
    assert ours is not None
    found = [each for each in rows if each["adapter"] in others and column in each]
    if not found:
        return _time(ours[column]), "-"
    best = min(found, key=lambda each: float(each[column]))
    times = 1 / _behind(ours, best, column)
    return _time(ours[column]), f"{best['adapter']} {_time(best[column])}: {times:.2f} times"


def _behind(ours: Row, other: Row, column: str) -> float:
    """Return how many times as much ours takes; of cycles by the ratios within each round."""
    within: dict[str, float] = ours.get("times", {}) if column == "microseconds" else {}
    if other["adapter"] in within:
        return 1 / float(within[other["adapter"]])
    return float(ours[column]) / max(float(other[column]), 1e-9)


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f} µs"


# -- where ours is behind --------------------------------------------------------------------------


def ahead() -> str:
    """Return every figure in which another library that can do the same is ahead of ours."""
    run = _Run()
    lines = _table("store", "technique", "who", "how many times as much ours takes")
    for store, backend in run.techniques:
        for mode in ("", "shared", "limit"):
            for other in sorted(run.others(store, backend, mode)):
                behind: dict[str, list[str]] = {}
                for when, what, times in _figures_of(run, store, backend, mode, other):
                    if times > LEVEL:
                        behind.setdefault(when, []).append(f"{what} {times:.2f}")
                if behind:
                    title = f"{backend}, {mode}" if mode else backend
                    cells = [f"{when}: {', '.join(parts)}" for when, parts in behind.items()]
                    lines.append(row(NAMES[store], title, _plain(other), "; ".join(cells)))
    return "\n".join(lines)


def _figures_of(
    run: _Run, store: str, backend: str, mode: str, other: str
) -> Iterator[tuple[str, str, float]]:
    """Yield when and what was measured of ours and of another library, and the ratio."""

    def pairs(measure: str, of: str = mode, **facts: object) -> Iterator[tuple[Row, Row]]:
        rows = run.of(measure, store, backend, **facts)
        ours = run.ours(rows, of)
        theirs = [each for each in rows if each["adapter"] == other]
        if ours is not None:
            yield from ((ours, each) for each in theirs)

    for ours, theirs in pairs("cycles", "limit=4" if mode == "limit" else mode):
        yield "acquire, release", "time", _behind(ours, theirs, "microseconds")
        if "statements" in ours:
            yield "acquire, release", "messages", _behind(ours, theirs, "statements")
    if mode == "limit":
        for hold in (2.0, 20.0):
            for ours, theirs in pairs("several", "limit=4", hold_ms=hold, at_once=4):
                times = _behind(theirs, ours, "per_second")
                yield f"work in holds of {hold:g} ms", "time", times
        for limit in (1, 4, 16):
            rows = run.of("limits", store, backend, at_once=limit)
            mine = run.ours(rows, f"limit={limit}")
            name = other.replace("4", str(limit))
            for theirs in (each for each in rows if each["adapter"] == name):
                yield from _handed(mine, theirs, f"hand-off with a limit of {limit}")
        return
    if mode:
        return
    for waiters in (2, 8, 32):
        for ours, theirs in pairs("handoff", waiters=waiters):
            yield from _handed(ours, theirs, f"hand-off with {waiters} waiters")
    for ours, theirs in pairs("failing"):
        yield "failed attempt", "time", _behind(ours, theirs, "microseconds")
    for ours, theirs in pairs("fairness"):
        yield "fairness", "most by least grants", _behind(ours, theirs, "most_per_least")
    saved = [each for each in run.rows if (each["measure"], each["store"]) == ("save", store)]
    saves = {each["adapter"]: each for each in saved}
    if backend == "version" and f"{other} save()" in saves:
        yield "save()", "time", _behind(saves[SAVE], saves[f"{other} save()"], "microseconds")


def _handed(ours: Row | None, theirs: Row, when: str) -> Iterator[tuple[str, str, float]]:
    for column, what in (("p50_us", "p50"), ("p99_us", "p99"), ("statements", "messages")):
        if ours is not None and column in ours and column in theirs:
            yield when, what, _behind(ours, theirs, column)


# -- shared locks and limits -----------------------------------------------------------------------


def modes() -> str:
    """Return what shared locks and limits cost, beside other libraries."""
    run = _Run()
    lines = _table(
        "acquire and release", "exclusive", "shared", "limit=4", "others, shared", "others, limit=4"
    )
    for store, backend in run.techniques:
        rows = run.of("cycles", store, backend)
        found = [run.ours(rows, mode) for mode in ("", "shared", "limit=4")]
        if not any(found[1:]):
            continue
        cells = [_time(each["microseconds"]) if each else "" for each in found]
        for mode in ("shared", "limit"):
            names = run.others(store, backend, mode)
            theirs = [each for each in rows if each["adapter"] in names]
            cells.append(
                "; ".join(f"{_plain(e['adapter'])} {_time(e['microseconds'])}" for e in theirs)
            )
        lines.append(row(_named(store, backend), *cells))
    lines += ["", *_table("hand-off with 32 waiters, p50; p99", "limit=1", "limit=4", "limit=16")]
    for store, backend in run.techniques:
        by_name: dict[str, dict[int, Row]] = {}
        for each in run.of("limits", store, backend):
            name = each["adapter"].replace(str(each["at_once"]), "4")
            by_name.setdefault(name, {})[each["at_once"]] = each
        for name, of in by_name.items():
            mine = any(each["kind"] == "ours" for each in of.values())
            cells = [_handed_in(of.get(limit)) for limit in (1, 4, 16)]
            lines.append(row(_named(store, backend) if mine else _plain(name), *cells))
    lines += ["", *_table("8 processes, holds of 20 ms a second", "exclusive", "limit=4", "others")]
    for store, backend in run.techniques:
        rows = run.of("several", store, backend, hold_ms=20.0)
        alone, four = run.ours(rows), run.ours(rows, "limit=4")
        if alone is None or four is None:
            continue
        names = run.others(store, backend, "limit")
        theirs = [each for each in rows if each["adapter"] in names and each["at_once"] == 4]
        cells = [
            f"{alone['per_second']:.0f}",
            f"{four['per_second']:.0f}: {four['times']:.2f} times",
            "; ".join(f"{_plain(each['adapter'])} {each['per_second']:.0f}" for each in theirs),
        ]
        lines.append(row(_named(store, backend), *cells))
    return "\n".join(lines)


def _plain(name: str) -> str:
    """Return the name of a library, without the mode that a column says."""
    return name.partition(", ")[0]


def _named(store: str, backend: str) -> str:
    return NAMES[store] if backend in (store, "redlock") else f"{NAMES[store]}, {backend}"


def _handed_in(of: Row | None) -> str:
    if of is None or "p50_us" not in of:
        return ""
    return f"{of['p50_us'] / 1000:.2f}; {of['p99_us'] / 1000:.1f} ms"


# -- growth ----------------------------------------------------------------------------------------


def growth() -> str:
    """Return how ours grew: with waiters, names and leases."""
    run = _Run()
    lines = _table(
        "store",
        "hand-off p50, 2 and 256 waiters",
        "messages or statements of it",
        "a cycle over 1, 1,000, 100,000 names",
        "CPU of 1,000, 10,000, 50,000 leases",
    )
    for store in dict.fromkeys(store for store, _ in run.techniques):
        mine = [each for each in run.rows if each["store"] == store]
        waiters = {each["waiters"]: each for each in mine if each["measure"] == "growth-waiters"}
        names = {each["keys"]: each for each in mine if each["measure"] == "growth-keys"}
        leases = {each["leases"]: each for each in mine if each["measure"] == "growth-leases"}
        if not (waiters and names and leases):
            continue
        few, many = waiters[min(waiters)], waiters[max(waiters)]
        cpu = [leases[number] for number in sorted(leases) if number > 1]
        lines.append(
            row(
                NAMES[store],
                f"{few['p50_us'] / 1000:.1f} and {many['p50_us'] / 1000:.1f} ms",
                f"{few['statements']:.1f} and {many['statements']:.1f}",
                ", ".join(f"{names[each]['microseconds']:,.0f}" for each in sorted(names)) + " µs",
                "; ".join(f"{each['leases']:,}: {each['cpu_percent']:.1f} %" for each in cpu),
            )
        )
    return "\n".join(lines)


KINDS: dict[str, Callable[..., str]] = {
    "figures": figures,
    "ahead": ahead,
    "modes": modes,
    "growth": growth,
}
