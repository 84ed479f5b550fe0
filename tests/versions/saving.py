"""What the tests of ``save()`` share."""

from __future__ import annotations

from typing import Any

from tests.versions.models import Item


def item(store: str, **more: Any) -> Item:
    """Make a row."""
    return Item.objects.using(store).create(name="a", **more)


def again(thing: Any) -> Any:
    """Read the same row once more."""
    return type(thing).objects.using(thing._state.db).get(pk=thing.pk)
