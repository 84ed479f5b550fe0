"""How often a second, of several things that take turns, with client and server on one core."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from ..bench import Bench, Row, Subject
from ..processes import Child, on_one_core

__all__ = ["rates"]


class Closed(Subject, Protocol):
    """A subject that is closed at the end."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Closed)
Once = Callable[[], object]
_Seen = dict[str, list[tuple[float, float]]]


def rates(
    bench: Bench, measure: str, subjects: Sequence[S], ready: Callable[[S], Once]
) -> list[Row]:
    """Measure how often a second, and the client's CPU; slices of all subjects take turns.

    ``ready`` opens a subject and returns what is done again and again. Each has a process of its
    own, so that none pays for what another left behind. On one core, because the kernel would put
    client and server on one core or on two as it likes, which makes the same work 16 or 120 us
    long.
    """
    bench.say(measure)
    pids = bench.store.pids()
    if not (bench.store.in_client or pids):
        raise RuntimeError(f"The processes of {bench.store.name} are not known: on which core?")
    seen: _Seen = {each.name: [] for each in subjects}
    with on_one_core(pids):
        children = {each.name: Child(_run, each, ready, bench) for each in subjects}
        for child in children.values():
            child.expect("ready")
        with on_one_core(bench.store.pids()):  # the sessions that were opened since
            for turn in bench.rotated(list(subjects), bench.rounds):
                for subject in turn:
                    children[subject.name].pipe.send("go")
                    seen[subject.name].append(children[subject.name].expect("done"))
        for child in children.values():
            child.pipe.send("end")
            child.result()
    return [_row(bench, measure, subject, seen) for subject in subjects]


def _run(pipe: Connection, subject: S, ready: Callable[[S], Once], bench: Bench) -> None:
    once, clock, seconds = ready(subject), time.perf_counter, bench.slice
    for _ in range(bench.warm_up):
        once()
    pipe.send(("ready", None))
    while pipe.recv() == "go":
        done, cpu, start = 0, time.process_time(), clock()
        while (passed := clock() - start) < seconds:
            once()
            done += 1
        pipe.send(("done", (done / passed, (time.process_time() - cpu) / done)))
    subject.close()


def _row(bench: Bench, measure: str, subject: Subject, seen: _Seen) -> Row:
    rates = [rate for rate, _ in seen[subject.name]]
    low, middle, high = _quartiles(rates)
    # Of each round by itself: what disturbs the machine disturbs neighbours in time alike.
    ratios = {
        other: _quartiles([a / b for a, (b, _) in zip(rates, seen[other], strict=True)])
        for other in seen
    }
    return bench.row(
        measure,
        subject,
        per_second=round(middle),
        best=round(max(rates)),
        quartiles=[round(low), round(high)],
        microseconds=round(1e6 / middle, 1),
        cpu_ms_per_1000=round(statistics.median(cpu for _, cpu in seen[subject.name]) * 1e6, 1),
        times={other: round(each[1], 3) for other, each in ratios.items()},
        times_quartiles={other: [round(q, 3) for q in each[::2]] for other, each in ratios.items()},
        rounds=len(rates),
    )


def _quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
