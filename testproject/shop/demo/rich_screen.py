"""The live display, for terminals where `rich` is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .figures import KillResult, LimitResult, RaceResult
from .screen import (
    HEADINGS,
    Screen,
    Show,
    cells,
    handover_note,
    kill_summary,
    kill_text,
    label,
    limit_summary,
    limit_text,
)


class RichScreen(Screen):
    """Show progress bars, and colour what went wrong."""

    def __init__(self, *, color: bool = True) -> None:
        self._console = Console(no_color=not color, highlight=False)
        super().__init__(lambda text: self._console.print(Text(text)))

    def note(self, text: str) -> None:
        """Show a remark in a quiet colour."""
        self._console.print(Text(text, style="dim"))

    @contextmanager
    def race(self, technique: str, alias: str | None, stock: int) -> Iterator[Show]:
        """Show a bar that fills, and in red what goes beyond the stock."""
        with self._progress() as bar:
            task = bar.add_task(label(technique, alias), total=stock, text="starting")

            def show(orders: int) -> None:
                beyond = orders - stock
                extra = f"  [bold red]+{beyond} beyond the stock[/]" if beyond > 0 else ""
                text = f"{min(orders, stock)} of {stock}{extra}"
                bar.update(task, completed=min(orders, stock), text=text)

            yield show

    @contextmanager
    def kill(self, technique: str, alias: str, ttl: float) -> Iterator[None]:
        """Show a bar that moves until the others have had the lock."""
        with self._progress() as bar:
            task = bar.add_task(label(technique, alias), total=None, text=kill_text(ttl))
            yield
            bar.update(task, total=1, completed=1, text="one worker killed while it held the lock")

    @contextmanager
    def limit(self, technique: str, alias: str, limit: int) -> Iterator[None]:
        """Show a bar that moves until all have called."""
        with self._progress() as bar:
            task = bar.add_task(label(technique, alias), total=None, text=limit_text(limit))
            yield
            bar.update(task, total=1, completed=1, text=f"all have called, limit={limit}")

    def results(
        self,
        races: Sequence[RaceResult],
        limits: Sequence[LimitResult],
        kills: Sequence[KillResult],
    ) -> None:
        """Show a table, and a paragraph for each limit and each kill."""
        # Narrow enough for 80 columns: only the technique is broken over lines.
        table = Table(header_style="bold", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        table.add_column(HEADINGS[0])
        for heading in HEADINGS[1:]:
            table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
        for race in races:
            wrong = race.audit.oversold + race.audit.lost + race.overlaps > 0
            table.add_row(*cells(race), style="red" if wrong else "green")
        self._console.print(table)
        for race in races:
            if race.handovers:
                self.note(handover_note(race))
        for limit in limits:
            style = "red" if limit.failures else "green"
            self._console.print(Text(limit_summary(limit), style=style))
        for kill in kills:
            wrong = bool(kill.failures) or kill.late
            self._console.print(Text(kill_summary(kill), style="red" if wrong else "green"))

    def _progress(self) -> Progress:
        return Progress(
            SpinnerColumn(finished_text="•"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
