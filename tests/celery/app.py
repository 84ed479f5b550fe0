"""The Celery app of the tests, for this process and for the workers that it starts."""

from __future__ import annotations

import os

import django
from celery import Celery
from celery.signals import setup_logging
from django.apps import apps

if not apps.ready:  # in a worker
    django.setup()

BROKER = os.environ.get("DISTLOCK_TEST_BROKER", "redis://127.0.0.1:1/0")
FOLDER = os.environ.get("DISTLOCK_TEST_FOLDER")
CARRIER = "filesystem://" if FOLDER else os.environ.get("DISTLOCK_TEST_CARRIER", BROKER)
"""What carries the messages; results, and what tests and tasks tell each other, go by BROKER."""

app = Celery("distlock-tests", broker=CARRIER, backend=BROKER, include=["tests.celery.tasks"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "data_folder_in": FOLDER,
        "data_folder_out": FOLDER,
        "control_folder": f"{FOLDER}/control",
    }
    if FOLDER
    else {
        "visibility_timeout": int(os.environ.get("DISTLOCK_TEST_VISIBILITY", "600")),
        # Every 10 s, not every 100; and what a killed worker was at does not hold that up for long.
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 5,
    },
    task_publish_retry=False,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=True,  # as Celery asks for, by a warning
    result_expires=600,
)


@setup_logging.connect
def quiet(**_: object) -> None:
    """Leave logging as Django's settings have it."""
