#!/usr/bin/env python
"""Run Django's commands for the example shop, among them the lock demo."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command given on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
