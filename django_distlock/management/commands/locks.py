"""`manage.py locks`: who holds what, and freeing what is stuck."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...backends.base import BaseLockBackend
from ...core import flow
from ...core.names import check_name, unreadable
from ...core.system import user_id
from ...core.text import shown
from ...core.values import LockInfo
from ...exceptions import InvalidLockError, UnsupportedOperationError
from ...history import break_hold
from ...inspection import LIMIT, Seen, ask, distinct, look, round_trip
from ...models import ForcedRelease
from ..choosing import add_choice, open_aliases
from ..showing import as_block, as_json, as_table

__all__ = ["Command"]

EPILOG = """
A store that is down is shown with its error, and the others without it; the exit code is 1 then.
"""
CLEAR = "\x1b[H\x1b[2J"

Found = list[tuple[BaseLockBackend, LockInfo]]


class Command(BaseCommand):
    """Look at the locks of every alias, and break one."""

    help = "Show the holder of each lock, and release a lock that is stuck."
    # An alias that is set up wrongly is no reason not to see the others.
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(prog_name, subcommand, epilog=EPILOG, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        # All are here: a default of an action's own would replace what was said before it.
        parser.set_defaults(using=None, all=False, prefix="", limit=LIMIT, format="table")
        parser.set_defaults(interval=2.0, count=None, escaped=False, token=None, why="", yes=False)
        _add_listing(parser)
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        add = partial(actions.add_parser, argument_default=argparse.SUPPRESS)
        _add_listing(add("list", help="List the locks that are held. So does no action at all."))
        watching = add("watch", help="List them again and again, until Ctrl-C.")
        _add_listing(watching)
        watching.add_argument("--interval", type=float, metavar="SECONDS", help="The pause (2).")
        watching.add_argument("--count", type=int, metavar="N", help="End after so many times.")
        pinging = add("ping", help="Ask each store for an answer.")
        _add_aliases(pinging)
        _add_answer(pinging)
        showing = add("show", help="Show all that is known of one lock.")
        _add_name(showing)
        _add_aliases(showing)
        _add_answer(showing)
        releasing = add(
            "release",
            help="Release a lock, whoever holds it.",
            description="Release a lock, whoever holds it. Only the grant that was shown is "
            "released, never a newer one. Its holder is not stopped, and learns of it by its next "
            "renewal.",
        )
        _add_name(releasing)
        add_choice(
            releasing,
            "The alias that holds it; needed when several do. May be given several times.",
            "Free it in every alias that holds it.",
        )
        _add_answer(releasing)
        releasing.add_argument(
            "--token", type=int, metavar="N", help="The fencing token of one of several holders."
        )
        releasing.add_argument("--why", metavar="TEXT", help="For the history.")
        releasing.add_argument("--yes", action="store_true", help="Do not ask.")

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
            sys.stdout.flush()
        except BrokenPipeError:
            # Who reads it has seen enough, as `head` has. What is left to be written goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(128 + signal.SIGPIPE)

    def handle(self, *args: Any, **options: Any) -> None:
        actions = {
            "list": self._list,
            "watch": self._watch,
            "ping": self._ping,
            "show": self._show,
        }
        action = options["action"] or "list"
        if options["prefix"] and action not in ("list", "watch"):
            raise CommandError(f"--prefix is for list and watch, not for {action}.")
        actions.get(action, self._release)(options)

    # -- list and watch ----------------------------------------------------------------------------

    def _list(self, options: Mapping[str, Any]) -> None:
        found = self._look(options)
        if options["format"] == "json":
            self.stdout.write(json.dumps([_listed(seen) for seen in found], indent=2))
        else:
            self._table(found)
        self._end([seen.alias for seen in found if seen.error])

    def _watch(self, options: Mapping[str, Any]) -> None:
        rounds = 0
        try:
            while options["count"] is None or rounds < options["count"]:
                if rounds:
                    time.sleep(max(0.0, options["interval"]))
                rounds += 1
                found = self._look(options)
                if options["format"] == "json":
                    self.stdout.write(json.dumps([_listed(seen) for seen in found]))
                else:
                    if self.stdout.isatty():
                        self.stdout.write(CLEAR, ending="")
                    self.stdout.write(f"{datetime.now():%H:%M:%S}")
                    self._table(found)
                self.stdout.flush()
        except KeyboardInterrupt:
            self.stdout.write("")

    def _look(self, options: Mapping[str, Any]) -> list[Seen]:
        opened, broken = open_aliases(options["using"])
        wanted = _wanted(opened, options)
        found = look(wanted, options["prefix"], options["limit"])
        for seen in found:
            seen.locks.sort(key=lambda info: (info.acquired_at or _now(), info.name))
        return [*(Seen(alias, error=error) for alias, error in broken.items()), *found]

    def _table(self, found: list[Seen]) -> None:
        for seen in found:
            if seen.error:
                self.stderr.write(f"{seen.alias}: {seen.error}")
            elif not seen.shows_holders:
                self.stderr.write(f"{seen.alias}: it does not show who holds its locks.")
        held = list(distinct(found))
        down = sum(1 for seen in found if seen.error)
        if held:
            self.stdout.write(as_table(((seen.alias, info) for seen, info in held), _now()))
        if down:  # what is held there is not known
            number = f"{len(held)} lock{'' if len(held) == 1 else 's'}"
            read = f"in {len(found) - down} of {len(found)} stores"
            self.stdout.write(f"{number} {read}; {down} could not be read.")
        elif not held and any(seen.shows_holders for seen in found):
            self.stdout.write("No lock is held.")

    # -- ping --------------------------------------------------------------------------------------

    def _ping(self, options: Mapping[str, Any]) -> None:
        opened, errors = open_aliases(options["using"])
        answers = ask(_wanted(opened, options), round_trip, options["limit"])
        errors |= {alias: each.error for alias, each in answers.items() if each.error}
        took = {alias: each.value for alias, each in answers.items() if each.value is not None}
        if options["format"] == "json":
            told = [
                {"alias": alias, "seconds": took.get(alias), "error": errors.get(alias)}
                for alias in (*errors, *took)
            ]
            self.stdout.write(json.dumps(told, indent=2))
        else:
            for alias, seconds in took.items():
                self.stdout.write(f"{alias}: {1000 * seconds:.1f} ms")
            for alias, error in errors.items():
                self.stderr.write(f"{alias}: {error}")
        if errors:
            raise CommandError(f"No answer: {', '.join(errors)}.")

    # -- show and release --------------------------------------------------------------------------

    def _show(self, options: Mapping[str, Any]) -> None:
        name, found, failed = self._find(options)
        if options["format"] == "json":
            self.stdout.write(
                json.dumps([as_json(backend.alias, info) for backend, info in found], indent=2)
            )
        else:
            blocks = [as_block(backend.alias, info, _now()) for backend, info in found]
            self.stdout.write("\n\n".join(blocks), ending="\n" if blocks else "")
        self._end(failed)
        if not found:
            raise CommandError(f"Not held: '{shown(name)}'.")

    def _release(self, options: Mapping[str, Any]) -> None:
        to_program = options["format"] == "json"
        if to_program and not options["yes"]:
            raise CommandError("With --format json nothing is asked: add --yes.")
        name, found, failed = self._find(options)
        if (token := options["token"]) is not None:
            found = [each for each in found if each[1].fencing_token == token]
        aliases = dict.fromkeys(backend.alias for backend, _ in found)
        if len(aliases) > 1 and not options["all"] and not options["using"]:
            raise CommandError(
                f"'{shown(name)}' is held in {', '.join(aliases)}. Say which by --using, or --all."
            )
        if len(found) > len(aliases) and not options["all"]:
            raise CommandError(
                f"'{shown(name)}' has {len(found)} holders. Say which by --token; "
                "`locks show` tells their tokens."
            )
        freed: list[dict[str, Any]] = []
        try:
            for backend, info in found:
                try:
                    backend.check_forcing(name)
                except UnsupportedOperationError as error:
                    raise CommandError(str(error)) from error
                if not to_program:
                    self.stdout.write(as_block(backend.alias, info, _now()))
                if not options["yes"] and not self._confirmed():
                    raise CommandError("Not released.")
                self._break(backend, info, options["limit"], options["why"])
                freed.append(as_json(backend.alias, info))
                if not to_program:
                    self.stdout.write(f"Released in {backend.alias}.")
        finally:
            if to_program:
                self.stdout.write(json.dumps(freed, indent=2))
        self._end(failed)
        if not found:
            raise CommandError(f"Not held: '{shown(name)}'.")

    def _confirmed(self) -> bool:
        self.stdout.write("The holder is not stopped. Free it? [y/N] ", ending="")
        self.stdout.flush()
        try:
            return input().strip().lower() in ("y", "yes")
        except EOFError:  # nobody is there: --yes is for that
            self.stdout.write("")
            return False

    def _break(self, backend: BaseLockBackend, info: LockInfo, limit: float, why: str) -> None:
        def free(backend: BaseLockBackend) -> None:
            break_hold(backend, info, by=_user(), way=ForcedRelease.Way.COMMAND, why=why)

        answer = ask({backend.alias: backend}, free, limit)[backend.alias]
        if answer.error and answer.cause is None:
            raise CommandError(
                f"{answer.error}: it may be free, or not. Look at it by `locks show`"
            )
        if answer.error:
            raise CommandError(answer.error) from answer.cause

    def _find(self, options: Mapping[str, Any]) -> tuple[str, Found, list[str]]:
        """Return the name, where it is held, and the aliases that could not be asked."""
        name = unreadable(options["name"]) if options["escaped"] else options["name"]
        try:
            check_name(name)
        except InvalidLockError as error:
            raise CommandError(str(error)) from error
        opened, errors = open_aliases(options["using"])
        wanted = _wanted(opened, options)

        def holders(backend: BaseLockBackend) -> list[LockInfo]:
            return flow.run(backend._holders_of(name))

        found: Found = []
        for alias, answer in ask(wanted, holders, options["limit"]).items():
            if answer.error:
                errors[alias] = answer.error
                continue
            # Aliases of one table and PREFIX show the same hold, by its owner.
            known = {seen.owner for _, seen in found} - {""}
            others = [info for info in answer.value or () if info.owner not in known]
            found += [(wanted[alias], info) for info in others]
        for alias, error_text in errors.items():
            self.stderr.write(f"{alias}: {error_text}")
        return name, found, list(errors)

    def _end(self, failed: list[str]) -> None:
        if failed:
            raise CommandError(f"Not read: {', '.join(failed)}. See the errors above.")


def _add_aliases(parser: argparse.ArgumentParser) -> None:
    add_choice(
        parser,
        "An alias of DISTLOCKS to look at; may be given several times.",
        "Look at every alias. The default.",
    )


def _add_listing(parser: argparse.ArgumentParser) -> None:
    _add_aliases(parser)
    parser.add_argument("--prefix", help="Only names that begin with this.")
    _add_answer(parser)


def _add_answer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help=f"How long a store may take to answer ({LIMIT:g}).",
    )
    parser.add_argument(
        "--format", choices=["table", "json"], help="For people (table), or for programs."
    )


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="The lock's name.")
    parser.add_argument(
        "--escaped", action="store_true", help=r"NAME has escapes such as \n, \x1b or \u202e."
    )


def _wanted(
    opened: Mapping[str, BaseLockBackend], options: Mapping[str, Any]
) -> dict[str, BaseLockBackend]:
    using = options["using"]
    using = [using] if isinstance(using, str) else using
    return {alias: backend for alias, backend in opened.items() if not using or alias in using}


def _listed(seen: Seen) -> dict[str, Any]:
    locks = [as_json(seen.alias, info) for info in seen.locks]
    told = {"alias": seen.alias, "error": seen.error, "shows_holders": seen.shows_holders}
    return {**told, "locks": locks}


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (ImportError, KeyError, OSError):  # an account without a name, as in some containers
        return f"{user_id()}@{socket.gethostname()}"


def _now() -> datetime:
    return datetime.now(UTC)
