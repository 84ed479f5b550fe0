"""The Locks page over the stores of this run, in a process of its own; run by `test_every_alias`.

Each line that it is given is a query, and each line of its answer the page, as a JSON string.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Answer until there are no more lines."""
    from django.conf import settings

    from tests import settings as stores

    others = {name: facts for name, facts in stores.DATABASES.items() if name != "default"}
    facts = {"file": ":memory:", "databases": others, "distlocks": stores.DISTLOCKS}
    os.environ["DISTLOCK_BROWSER_SITE"] = json.dumps(facts)
    from tests.browser.site import settings as site

    wanted = {name: getattr(site, name) for name in dir(site) if name.isupper()}
    settings.configure(**wanted, CACHES=stores.CACHES)

    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)

    from django.contrib import admin
    from django.contrib.auth.models import User
    from django.test import Client

    from django_distlock.models import HeldLock

    page = admin.site.get_model_admin(HeldLock)
    page.limit = 60.0  # type: ignore[attr-defined] # however busy the machine is
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.create_superuser("boss"))
    for line in sys.stdin:
        answer = client.get(f"/admin/django_distlock/heldlock/?{line.strip()}")
        print(json.dumps(answer.content.decode()), flush=True)


if __name__ == "__main__":
    main()
