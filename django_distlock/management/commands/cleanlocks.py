"""`manage.py cleanlocks`: remove what the stores keep of names that are not used any more."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...backends.base import BaseLockBackend
from ...core.cleaning import check_policy
from ...core.durations import MIN_AGE, check_age, parse_age
from ...core.values import Cleaned
from ...exceptions import InvalidLockError, LockError
from ..choosing import add_choice, open_aliases

__all__ = ["Command"]

EPILOG = """
A name is idle when it was neither granted nor held for RETENTION. Aliases that share a table are
cleaned together, by the longest of their RETENTIONs. Held locks are never touched, fencing tokens
go on rising, and the command may run on several hosts at once. The exit code is 1 when an alias
could not be cleaned; the others are still cleaned.
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the aliases of one table: a line of the output."""

    aliases: list[str]
    older_than: float | None
    dry_run: bool
    removed: int | None = None
    seen: int | None = None
    seconds: float | None = None
    error: str | None = None


class Command(BaseCommand):
    """Clean one alias after the other; each failure is told, and stops no other alias."""

    help = "Remove what the lock stores keep of names that were not held for RETENTION."
    # One alias that is set up wrongly is no reason to leave the others uncleaned.
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(prog_name, subcommand, epilog=EPILOG, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add_choice(
            parser,
            "An alias of DISTLOCKS to clean; may be given several times.",
            "Clean every alias. The default.",
        )
        parser.add_argument(
            "--older-than",
            metavar="AGE",
            help="Remove what was idle for so long: seconds, or a number with s, m, h, d or w, "
            "such as 12h or 7d. Instead of RETENTION; from 60 seconds on.",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Remove nothing, only say how much it would be."
        )
        parser.add_argument(
            "--batch-size",
            type=int,
            default=500,
            metavar="N",
            help="Entries to read with one call to the store (500).",
        )
        parser.add_argument(
            "--format",
            choices=["text", "json"],
            default="text",
            help="Print a line for each table, or one list as JSON.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        given = options["older_than"]
        try:
            age = None if given is None else _age(given)
            check_policy(age or MIN_AGE, options["dry_run"], options["batch_size"], None)
        except InvalidLockError as error:
            raise CommandError(str(error)) from error
        using = [options["using"]] if isinstance(options["using"], str) else options["using"]
        opened, broken = open_aliases(using)
        reports = [Report([a], age, options["dry_run"], error=said) for a, said in broken.items()]
        for report in reports:
            self._tell_error(report)
        for backends in self._tables(opened.values(), using):
            report = self._clean(backends, age, options["dry_run"], options["batch_size"])
            reports.append(report)
            self._tell(report, options)
        if options["format"] == "json":
            self.stdout.write(json.dumps([asdict(report) for report in reports], indent=2))
        if failed := [alias for report in reports if report.error for alias in report.aliases]:
            raise CommandError(f"Not cleaned: {', '.join(failed)}. See the errors above.")

    def _tables(
        self, opened: Iterable[BaseLockBackend], using: list[str] | None
    ) -> list[list[BaseLockBackend]]:
        """Return the backends that are cleaned together, as far as they are wanted."""
        shared: dict[Hashable, list[BaseLockBackend]] = {}
        for backend in opened:
            shared.setdefault(backend.cleaned_with(), []).append(backend)
        return [
            backends
            for backends in shared.values()
            if using is None or any(backend.alias in using for backend in backends)
        ]

    def _clean(
        self, backends: list[BaseLockBackend], age: float | None, dry_run: bool, batch: int
    ) -> Report:
        aliases = [backend.alias for backend in backends]
        older_than = max(b.conf.retention for b in backends) if age is None else age
        if not backends[0].cleans:
            return Report(aliases, older_than, dry_run)
        began = time.monotonic()
        try:
            done: Cleaned = backends[0].clean(older_than=older_than, dry_run=dry_run, batch=batch)
        except LockError as error:
            return Report(aliases, older_than, dry_run, error=str(error))
        seconds = round(time.monotonic() - began, 3)
        return Report(aliases, older_than, dry_run, done.removed, done.seen, seconds)

    def _tell(self, report: Report, options: dict[str, Any]) -> None:
        if report.error is not None:
            self._tell_error(report)
        elif options["format"] == "text" and options["verbosity"] > 0:
            if report.removed is None:
                names = ", ".join(report.aliases)
                self.stdout.write(f"{names}: nothing to clean, idle names leave nothing there")
                return
            did = "would be removed" if report.dry_run else "removed"
            took = f", {report.seconds:.1f} s" if options["verbosity"] > 1 else ""
            self.stdout.write(
                f"{', '.join(report.aliases)}: {report.removed} of {report.seen} {did} "
                f"(idle for {_shown(report.older_than or 0)}{took})"
            )

    def _tell_error(self, report: Report) -> None:
        self.stderr.write(f"{', '.join(report.aliases)}: {report.error}")


def _age(given: str | float | timedelta) -> float:
    """Return the seconds meant by the option, which `call_command` may give as it likes."""
    what = "--older-than"
    return parse_age(given, what=what) if isinstance(given, str) else check_age(given, what=what)


def _shown(seconds: float) -> str:
    """Return a duration as the option takes it."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
