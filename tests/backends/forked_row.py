"""A process that holds a row lock, has an idle session, and forks: python -m ... ALIAS NAME."""

from __future__ import annotations

import os
import sys

import django


def main(alias: str, name: str) -> int:
    """Return 0 when parent and child got on with each other."""
    from django_distlock import LockError, lock

    with lock(f"{name}:idle", using=alias), lock(f"{name}:idle2", using=alias):
        pass
    lease = lock(name, using=alias).acquire()
    assert lease
    child = os.fork()
    if not child:
        assert lock(name, using=alias, wait=0).acquire() is None
        assert lock(f"{name}:idle", using=alias, wait=0).acquire()
        try:
            lease.release()
        except LockError:
            sys.exit(7)
        sys.exit(8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    lease.renew()
    with lock(f"{name}:idle2", using=alias):
        lease.renew()
    lease.release()
    return 0


if __name__ == "__main__":
    django.setup()
    sys.exit(main(*sys.argv[1:]))
