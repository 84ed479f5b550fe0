"""The command that shows what a fence is good for."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from testproject.shop.demo.choice import check_ready, choose
from testproject.shop.demo.crew import DemoError
from testproject.shop.demo.stock import new_demo_id, remove, remove_stale
from testproject.shop.demo.stopped import run_round


class Command(BaseCommand):
    """Stop a worker past its ttl, and let it go on: without a fence and with one."""

    help = (
        "Stop a worker that packs an order (SIGSTOP), let the next one pack it when the ttl has "
        "passed, and continue the first (SIGCONT): without a fence it spoils the order, with one "
        "it is refused. Uses orders of its own and removes them. Exits with 1 when a fenced write "
        "got through."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--using", default="default", metavar="ALIAS", help="the alias of DISTLOCKS to take"
        )
        parser.add_argument(
            "--json", action="store_true", help="print what came of it as JSON and nothing else"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run both rounds, and exit with 1 when the fence did not hold."""
        say = (lambda text: None) if options["json"] else self.stdout.write
        demo = new_demo_id()
        rounds = []
        try:
            choose([options["using"]])
            check_ready([options["using"]])
            remove_stale()
            try:
                for fenced in (False, True):
                    say("With a fence:" if fenced else "Without a fence:")
                    rounds.append(run_round(demo, options["using"], fenced=fenced, say=say))
                    if rounds[-1].said:
                        say(f"  worker 1 was told: {rounds[-1].said}")
            finally:
                remove(demo)
        except DemoError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            figures = {"rounds": [each.as_dict() for each in rounds]}
            self.stdout.write(json.dumps(figures, indent=2))
        if not all(each.sound for each in rounds):
            raise CommandError("A write of a stale holder got through the fence.")
