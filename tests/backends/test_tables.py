"""What the migration makes of the tables, beyond what Django says of a model."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.db import connections

from tests.backends.tools import STORES, one_value

TABLES = ("distlock_lock", "distlock_row", "distlock_row_token", "distlock_row_session")


@pytest.mark.parametrize("store", [each for each in STORES if each == "postgresql"])
@pytest.mark.parametrize("table", TABLES)
def test_rows_are_updated_on_their_page(store: str, table: str) -> None:
    options = f"SELECT reloptions::text FROM pg_class WHERE oid = 'public.{table}'::regclass"
    assert one_value(store, options) == "{fillfactor=60}"
    indexes = f"SELECT count(*) FROM pg_index WHERE indrelid = 'public.{table}'::regclass"
    assert one_value(store, indexes) == 1, "the primary key, and none for LIKE"


@pytest.mark.parametrize("store", [each for each in STORES if each == "mariadb"])
def test_rows_are_locked_in_an_engine_that_can(store: str) -> None:
    engine = (
        "SELECT engine FROM information_schema.tables"
        " WHERE table_name = 'distlock_row' AND table_schema = DATABASE()"
    )
    assert one_value(store, engine) == "InnoDB"


@pytest.mark.parametrize("store", STORES)
def test_every_table_is_made(store: str) -> None:
    assert {*TABLES, "distlock_forced"} <= set(connections[store].introspection.table_names())


def test_only_what_does_something_is_permitted() -> None:
    found = {
        f"{action}_{model._meta.model_name}"
        for model in apps.get_app_config("django_distlock").get_models()
        for action in model._meta.default_permissions
    } | {
        name
        for model in apps.get_app_config("django_distlock").get_models()
        for name, _ in model._meta.permissions
    }
    assert found == {"view_heldlock", "release_heldlock", "view_forcedrelease"}
