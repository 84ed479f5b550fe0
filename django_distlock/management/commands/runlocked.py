"""`manage.py runlocked NAME -- command ...`: run a program under a lock, as flock(1) does."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...commands import HELD, LOST, AlreadyRunningError, alone, ending
from ...core.backoff import Backoff
from ...core.durations import UNSET, check_ttl, parse_duration
from ...core.holder import Caller, place_of
from ...core.names import readable
from ...core.text import shown
from ...exceptions import InvalidLockBackendError, InvalidLockError, UnsupportedOperationError
from ...leader import leader
from ...lease import Lease
from ...lock import Lock, lock
from ..child import Child

__all__ = ["Command"]

EPILOG = """
The lock is renewed as long as the command runs, and released when it ends. When the lock is lost,
the command is ended by SIGTERM, and by SIGKILL --kill-after seconds later. SIGTERM, SIGINT,
SIGQUIT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on. The exit code is that of the command, 128 + N
when signal N ended it, 127 when there is no such command, 126 when it cannot be run; 75 (or --on-
contention) when the lock is held, 69 when the store failed, 70 when the lock was lost. With
--leader it is run again, after a pause, wherever the lock is obtained next, until SIGTERM, SIGINT
or SIGQUIT ends it. The command finds DISTLOCK_NAME, DISTLOCK_ALIAS and DISTLOCK_FENCING_TOKEN in
its environment, and with --limit DISTLOCK_SLOT, from 0 to below the limit.
"""


ENDED_BY = (signal.SIGTERM, signal.SIGINT)  # while we wait: the command is not begun then
PAUSES = Backoff(1.0, 60.0)  # seconds before a leader's command is run again; less if it ran long

Ran: TypeAlias = tuple[int, bool]
"""The exit code, and whether the command was asked to end."""


class Command(BaseCommand):
    """Run a program while holding a lock."""

    help = "Run a command under a lock: runlocked NAME [options] -- COMMAND ..."
    requires_system_checks = ()

    _after: Sequence[str] = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(prog_name, subcommand, epilog=EPILOG, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="The lock's name.")
        parser.add_argument("--using", default="default", metavar="ALIAS", help="An alias.")
        parser.add_argument(
            "--ttl", metavar="AGE", help="Seconds, or with s, m, h or d, that the lock outlives us."
        )
        parser.add_argument(
            "--wait", metavar="AGE", help="How long to wait for it: 0 tries once; or 'forever'."
        )
        parser.add_argument(
            "--on-contention",
            type=int,
            default=HELD,
            metavar="CODE",
            help=f"The exit code when the lock is held ({HELD}).",
        )
        parser.add_argument(
            "--min-hold",
            metavar="AGE",
            help="How long the lock is held at least, when the command succeeds: for hosts whose "
            "clocks differ.",
        )
        parser.add_argument(
            "--shared",
            action="store_true",
            help="Share the lock with others that share it, as readers do.",
        )
        parser.add_argument(
            "--limit", type=int, metavar="N", help="How many may hold the lock at once."
        )
        parser.add_argument(
            "--leader",
            action="store_true",
            help="Keep one copy of the command running in the fleet: run it whenever we lead.",
        )
        parser.add_argument(
            "--kill-after",
            type=float,
            default=10.0,
            metavar="SECONDS",
            help="How long a command may take to end after the lock was lost (10).",
        )
        parser.add_argument(
            "--shell", action="store_true", help="Have a shell run COMMAND, joined by spaces."
        )
        parser.add_argument("command", nargs="*", metavar="COMMAND", help="What to run, after --.")

    def run_from_argv(self, argv: list[str]) -> None:
        # Not argparse: of two -- it takes the wrong one, depending on the version of Python.
        if "--" in argv:
            at = argv.index("--")
            self._after, argv = argv[at + 1 :], argv[:at]
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        command = [*options["command"], *self._after]
        if not command or not command[0]:
            raise CommandError("Nothing to run: write -- and the command behind the options.")
        guard = self._guard(options)
        guard = replace(guard, metadata={"command": shown(shlex.join(command), 300)})
        program = ["/bin/sh", "-c", " ".join(command)] if options["shell"] else command

        def run() -> Ran:
            caller = Caller(place_of(type(self).handle))
            with alone(
                guard, held=options["on_contention"], caller=caller, ended_by=ENDED_BY
            ) as lease:
                child = Child(program, kill_after=options["kill_after"])
                code = child.run(lease, _environment(lease))
                if code != 0:
                    lease._hold.min_hold = 0.0
                return code, child.is_told_to_end

        try:
            code = self._lead(run) if options["leader"] else run()[0]
        except (InvalidLockBackendError, InvalidLockError, UnsupportedOperationError) as error:
            raise CommandError(str(error)) from error
        except AlreadyRunningError as error:
            if options["verbosity"] > 0:
                raise
            sys.exit(error.returncode)
        if code:
            sys.exit(code)

    def _lead(self, run: Callable[[], Ran]) -> int:
        """Run the program again and again, each time as the leader, until a signal ends us."""
        pauses = iter(PAUSES)
        with ending(ENDED_BY):
            while True:
                began = time.monotonic()
                try:
                    code, told_to_end = run()
                    if told_to_end:
                        return code
                    self.stderr.write(f"The command has ended with code {code}.")
                except CommandError as error:
                    if error.returncode != LOST:
                        raise
                    self.stderr.write(str(error))
                if time.monotonic() - began >= PAUSES.longest:
                    pauses = iter(PAUSES)
                time.sleep(next(pauses))

    def _guard(self, options: dict[str, Any]) -> Lock:
        leads, wait = options["leader"], options["wait"]
        if leads and (wait is not None or options["on_contention"] != HELD):
            raise CommandError("A leader waits without limit: leave out --wait and --on-contention")
        if leads and (options["shared"] or options["limit"] is not None):
            raise CommandError("A leader leads alone: leave out --shared and --limit")
        try:
            least = _seconds(options["min_hold"], "--min-hold")
            using, ttl = options["using"], _seconds(options["ttl"], "--ttl")
            if leads:
                made = leader(options["name"], using=using, ttl=ttl).lock
            else:
                wait = None if wait == "forever" else _seconds(wait, "--wait")
                mode = {"shared": options["shared"], "limit": options["limit"]}
                made = lock(options["name"], using=using, ttl=ttl, wait=wait, renew=True, **mode)
            least = None if least is UNSET else check_ttl(least, what="--min-hold")
            return replace(made, min_hold=least, _literal=True)
        except InvalidLockError as error:
            raise CommandError(str(error)) from error


def _seconds(given: Any, what: str) -> Any:
    """Return the seconds meant by an option, which `call_command` may give as it likes."""
    if given is None:
        return UNSET
    return parse_duration(given, what=what) if isinstance(given, str) else given


def _environment(lease: Lease) -> dict[str, str]:
    environment = {"DISTLOCK_NAME": readable(lease.name), "DISTLOCK_ALIAS": lease.alias}
    with suppress(UnsupportedOperationError):
        environment["DISTLOCK_FENCING_TOKEN"] = str(lease.fencing_token)
    if lease.slot is not None:
        environment["DISTLOCK_SLOT"] = str(lease.slot)
    return environment
