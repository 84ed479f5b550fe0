"""What the tests of versioned models share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, models

from django_distlock import StaleVersionError
from tests.servers import DATABASES, chosen

STORES = [store for store in ("sqlite", *DATABASES) if store in chosen()]


def sql(store: str, statement: str, *parameters: Any) -> None:
    """Write behind the ORM's back."""
    with connections[store].cursor() as cursor:
        cursor.execute(statement, parameters)


def picture(instance: models.Model) -> dict[str, Any]:
    """Return what an instance holds."""
    state = {name: value for name, value in vars(instance).items() if name != "_state"}
    return state | {"adding": instance._state.adding, "db": instance._state.db}


@contextmanager
def refused(*instances: models.Model) -> Iterator[pytest.ExceptionInfo[StaleVersionError]]:
    """Expect a conflict, and that it leaves the instances as they were."""
    before = [picture(instance) for instance in instances]
    with pytest.raises(StaleVersionError) as raised:
        yield raised
    assert [picture(instance) for instance in instances] == before


def values(model: type[models.Model], store: str, *names: str) -> list[Any]:
    """Return what is in the table."""
    rows = model._base_manager.using(store).order_by("pk")
    return list(rows.values_list(*names, flat=len(names) == 1))
