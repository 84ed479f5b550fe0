"""The command that shows what a lock is good for."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_distlock import locks
from testproject.shop.demo.choice import (
    check_ready,
    choose,
    is_unsafe,
    technique_of,
    unsafe_alias,
)
from testproject.shop.demo.crew import Crew, DemoError
from testproject.shop.demo.figures import KillResult, LimitResult, RaceResult
from testproject.shop.demo.kill import run_kill
from testproject.shop.demo.limit import run_limit
from testproject.shop.demo.race import Plan, run_race
from testproject.shop.demo.screen import PlainScreen, Screen
from testproject.shop.demo.stock import new_demo_id, remove, remove_stale

INTERRUPTED = 130
Results = tuple[list[RaceResult], list[LimitResult], list[KillResult]]


NEXT = """
Next: make dashboard                    the Locks page, with locks of the stores that are here
      docs/tutorial/first-lock.md       a project of your own, in ten minutes
      docs/explanation/which-backend.md which store to take"""


class Command(BaseCommand):
    """Sell one stock by several processes, without a lock and with each lock there is."""

    help = (
        "Run a flash sale by several worker processes: first without a lock, which sells more than "
        "there is, then with each lock of DISTLOCKS that holds over processes. Then have all call "
        "a carrier that takes three requests at once, and kill a worker while it holds the lock. "
        "Uses products of its own and removes them. Exits with 1 if a lock let something go wrong."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--workers", type=at_least(2), default=6, help="number of processes (default: 6)"
        )
        parser.add_argument(
            "--stock", type=at_least(1), default=200, help="pieces on sale (default: 200)"
        )
        parser.add_argument(
            "--think",
            type=at_least(0),
            default=5,
            metavar="MS",
            help="time between reading and writing the stock, and between two purchases, in ms "
            "(default: 5)",
        )
        parser.add_argument(
            "--using",
            action="append",
            default=[],
            metavar="ALIAS",
            help="run only this alias of DISTLOCKS, whatever it is; may be repeated",
        )
        parser.add_argument(
            "--technique",
            action="append",
            default=[],
            choices=["getset"],
            help="run this technique too, which is unsafe: SETNX and GETSET on timestamps; needs "
            "SHOP_REDIS",
        )
        parser.add_argument(
            "--no-kill", action="store_true", help="do not kill a worker at the end"
        )
        parser.add_argument(
            "--json", action="store_true", help="print the figures as JSON and nothing else"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the demo, and exit with 1 when a lock did not do its work."""
        screen = self._screen(options)
        try:
            with _term_as_interrupt():
                races, limits, kills = self._run(screen, options)
        except DemoError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            self.stderr.write("Interrupted. All workers have ended; the demo's rows are removed.")
            sys.exit(INTERRUPTED)
        if options["json"]:
            figures = {
                "runs": [race.as_dict() for race in races],
                "limits": [limit.as_dict() for limit in limits],
                "kills": [kill.as_dict() for kill in kills],
            }
            self.stdout.write(json.dumps(figures, indent=2))
        else:
            screen.results(races, limits, kills)
        # What is unsafe may fail: that is what it is there for.
        safe = [race for race in races if race.alias is None or not is_unsafe(race.alias)]
        failures = [text for race in safe for text in race.failures]
        failures += [text for limit in limits for text in limit.failures]
        failures += [text for kill in kills for text in kill.failures]
        if failures:
            raise CommandError("\n".join(failures))
        if not options["json"]:
            screen.note(NEXT)

    def _run(self, screen: Screen, options: dict[str, Any]) -> Results:
        aliases, remarks = choose(options["using"])
        aliases += [unsafe_alias(technique) for technique in options["technique"]]
        check_ready(aliases)
        for remark in remarks:
            screen.note(remark)
        plan = Plan(new_demo_id(), options["stock"], options["think"] / 1000)
        remove_stale()
        try:
            with (
                tempfile.TemporaryDirectory(prefix="lock-demo-") as folder,
                Crew(options["workers"], Path(folder)) as crew,
            ):
                return _all_runs(crew, plan, screen, aliases, kill=not options["no_kill"])
        finally:
            remove(plan.demo)

    def _screen(self, options: dict[str, Any]) -> Screen:
        if options["json"]:
            return Screen(self.stderr.write)
        if self.stdout.isatty():
            try:
                from testproject.shop.demo.rich_screen import RichScreen
            except ImportError:
                pass
            else:
                return RichScreen(color=not options["no_color"])
        return PlainScreen(self._line)

    def _line(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _all_runs(crew: Crew, plan: Plan, screen: Screen, aliases: list[str], *, kill: bool) -> Results:
    races = [run_race(crew, plan, screen, technique="none", alias=None)]
    races += [
        run_race(crew, plan, screen, technique=technique_of(alias), alias=alias)
        for alias in aliases
    ]
    limits = [
        run_limit(crew, plan, screen, technique=technique_of(alias), alias=alias)
        for alias in aliases
        if locks[alias].supports_limit and not is_unsafe(alias)
    ]
    kills = [
        run_kill(crew, plan, screen, technique=technique_of(alias), alias=alias)
        for alias in aliases
        if kill and not is_unsafe(alias)
    ]
    return races, limits, kills


def at_least(least: int) -> Callable[[str], int]:
    """Return a function that reads an option that is an integer from `least` on."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise ArgumentTypeError(f"a whole number from {least} on is expected, not {text!r}")
        return value

    return read


@contextmanager
def _term_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the demo in the same order as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
