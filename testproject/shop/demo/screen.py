"""What the demo shows: plain lines here, a live display in ``rich_screen``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .figures import KillResult, LimitResult, RaceResult

Show = Callable[[int], None]

HEADINGS = (
    "technique",
    "orders",
    "oversold",
    "lost",
    "orders/s",
    "hand-off median",
    "hand-off p99",
    "worst wait",
)
LINE_EVERY_SECONDS = 2.0


class Screen:
    """Show nothing but notes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write

    def note(self, text: str) -> None:
        """Show a remark."""
        self.write(text)

    @contextmanager
    def race(self, technique: str, alias: str | None, stock: int) -> Iterator[Show]:
        """Show a race while the block runs; it calls what it is given with the orders so far."""
        yield lambda orders: None

    @contextmanager
    def kill(self, technique: str, alias: str, ttl: float) -> Iterator[None]:
        """Show that a holder is killed while the block runs."""
        yield

    @contextmanager
    def limit(self, technique: str, alias: str, limit: int) -> Iterator[None]:
        """Show that all call at once while the block runs."""
        yield

    def results(
        self,
        races: Sequence[RaceResult],
        limits: Sequence[LimitResult],
        kills: Sequence[KillResult],
    ) -> None:
        """Show the figures of all runs."""


class PlainScreen(Screen):
    """Show lines of text, which a file or a log takes as well."""

    @contextmanager
    def race(self, technique: str, alias: str | None, stock: int) -> Iterator[Show]:
        """Write a line at the start, now and then, and at the end."""
        title = label(technique, alias)
        self.write(f"{title}: {stock} pieces on sale ...")
        spoken = time.monotonic()
        last = 0

        def show(orders: int) -> None:
            nonlocal spoken, last
            last = orders
            if time.monotonic() - spoken >= LINE_EVERY_SECONDS:
                spoken = time.monotonic()
                self.write(f"{title}: {progress(orders, stock)}")

        yield show
        self.write(f"{title}: done, {progress(last, stock)}")

    @contextmanager
    def kill(self, technique: str, alias: str, ttl: float) -> Iterator[None]:
        """Write a line at the start."""
        self.write(f"{label(technique, alias)}: {kill_text(ttl)} ...")
        yield

    @contextmanager
    def limit(self, technique: str, alias: str, limit: int) -> Iterator[None]:
        """Write a line at the start."""
        self.write(f"{label(technique, alias)}: {limit_text(limit)} ...")
        yield

    def results(
        self,
        races: Sequence[RaceResult],
        limits: Sequence[LimitResult],
        kills: Sequence[KillResult],
    ) -> None:
        """Write a table, and a line for each limit and each kill."""
        rows = [HEADINGS, *(cells(race) for race in races)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self.write("")
        for row in rows:
            first, *rest = (
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            self.write("  ".join([first, *rest]))
        for race in races:
            if race.handovers:
                self.write(handover_note(race))
        if limits:
            self.write("")
        for limit in limits:
            self.write(limit_summary(limit))
        for kill in kills:
            self.write("")
            self.write(kill_summary(kill))


def label(technique: str, alias: str | None) -> str:
    """Name a run for people."""
    if alias is None:
        return "no lock"
    return technique if technique == alias else f"{technique} ({alias})"


def progress(orders: int, stock: int) -> str:
    """Say how far a race is."""
    beyond = f", {orders - stock} beyond the stock" if orders > stock else ""
    return f"{orders} orders of {stock} pieces{beyond}"


def kill_text(ttl: float) -> str:
    """Say what the kill is about."""
    return f"one worker holds the lock (ttl {ttl:g} s) and is killed, the others wait"


def limit_text(limit: int) -> str:
    """Say what the limit is about."""
    return f"all workers call a carrier that takes {limit} requests at once"


def limit_summary(limit: LimitResult) -> str:
    """Say how many called at once."""
    slots = ", ".join(map(str, limit.slots))
    return (
        f"{label(limit.technique, limit.alias)}: {limit.calls} calls to a carrier under "
        f"limit={limit.limit}: at most {limit.most} at once, in the slots {slots}."
    )


def kill_summary(kill: KillResult) -> str:
    """Say how long the others waited."""
    title = label(kill.technique, kill.alias)
    if not kill.waited_ms:
        return f"{title}: the holder was killed, and none of the others ever got the lock."
    if kill.early:
        return f"{title}: others had the lock while its holder still lived; it excludes nobody."
    verdict = "beyond" if kill.late else "within"
    others = ", ".join(f"{ms:.0f}" for ms in kill.waited_ms)
    return (
        f"{title}: the holder was killed with a lease of {kill.ttl_ms:.0f} ms; the next worker had "
        f"the lock {kill.waited_ms[0]:.0f} ms later ({verdict} the limit of {kill.limit_ms:.0f} "
        f"ms).\n  Then one after the other; first grant of each worker, in ms after the kill: "
        f"{others}."
    )


def handover_note(race: RaceResult) -> str:
    """Say what the hand-off times are about: how often the lock went to one who waited."""
    return (
        f"{label(race.technique, race.alias)}: {race.handovers} of {race.turns} turns went to a "
        "worker that was waiting; hand-off is the time from a release to such a grant."
    )


def cells(race: RaceResult) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        label(race.technique, race.alias),
        str(race.audit.orders),
        str(race.audit.oversold),
        str(race.audit.lost),
        f"{race.orders_per_s:.1f}",
        milliseconds(race.handover_median_ms),
        milliseconds(race.handover_p99_ms),
        milliseconds(race.worst_wait_ms),
    )


def milliseconds(value: float | None) -> str:
    """Write a time, or a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
