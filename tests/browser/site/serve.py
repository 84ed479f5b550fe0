"""Make the site's tables and users, and serve it: ``python -m tests.browser.site.serve PORT``."""

from __future__ import annotations

import sys

import django
from django.core.management import call_command

USERS = {
    "boss": ("view_heldlock", "release_heldlock", "view_forcedrelease"),
    "viewer": ("view_heldlock",),
    "clerk": (),
}
PASSWORD = "only-for-tests"


def main(port: str) -> None:
    """Make them unless they are there, and serve."""
    django.setup()
    from django.contrib.auth.models import Permission, User

    call_command("migrate", verbosity=0)
    for name, wanted in USERS.items():
        if not User.objects.filter(username=name).exists():
            user = User.objects.create_user(name, password=PASSWORD, is_staff=True)
            user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
    call_command("runserver", f"127.0.0.1:{port}", use_reloader=False, skip_checks=True)


if __name__ == "__main__":
    main(sys.argv[1])
