"""A server that forks two workers, and prints what a scrape shows; run as a program."""

from __future__ import annotations

import os
import signal

import django
from django.conf import settings


def work(begun: int, end: int) -> None:
    """Use three locks, and hold the last until told to end."""
    from django_distlock import lock

    for number in range(2):
        with lock(f"order:{number}", label="order:{id}"):
            pass
    with lock("order:2", label="order:{id}"):
        os.write(begun, b".")
        os.read(end, 1)


def scrape() -> str:
    """Return what is held, and how often a lock was granted, in all processes."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    labels = {"alias": "default", "lock": "order:{id}"}
    held = registry.get_sample_value("distlock_held", labels)
    granted = registry.get_sample_value(
        "distlock_acquisitions_total", {**labels, "outcome": "granted"}
    )
    return f"held: {held or 0:g}, acquisitions: {granted or 0:g}"


def main() -> None:
    """Fork, look, kill one, look, end the other, look."""
    from prometheus_client.multiprocess import mark_process_dead

    from django_distlock import lock
    from django_distlock.contrib import prometheus

    prometheus.install()
    mine = lock("order:3", label="order:{id}").acquire()  # which no child holds
    begun_read, begun = os.pipe()
    end_read, end = os.pipe()
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            work(begun, end_read)
            os._exit(0)
        children.append(pid)
    for _ in children:
        os.read(begun_read, 1)
    print(scrape())
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    mark_process_dead(children[0])  # type: ignore[no-untyped-call]
    print(scrape())
    os.write(end, b".")
    os.waitpid(children[1], 0)
    print(scrape())  # it was not killed: it has written that it holds nothing any more
    assert mine is not None
    mine.release()
    print(scrape())


if __name__ == "__main__":
    settings.configure(
        INSTALLED_APPS=["django_distlock"],
        DISTLOCKS={"default": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"}},
    )
    django.setup()
    main()
