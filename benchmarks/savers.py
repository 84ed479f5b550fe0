"""What the measure `save` compares: ways to save one row of the application's own."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from .adapter import Kind

__all__ = ["SAVERS", "Saver", "absent_savers", "savers"]


class Saver(ABC):
    """One kind of model, of which an instance is changed and saved again and again."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    needs: ClassVar[tuple[str, ...]] = ()
    apps: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def missing(cls) -> list[str]:
        """Return the modules that it needs and that are not installed."""
        return [name for name in cls.needs if importlib.util.find_spec(name) is None]

    @abstractmethod
    def model(self) -> Any:
        """Return the model, which is imported only once Django is set up."""

    def open(self) -> Callable[[], None]:
        """Make a row; return what changes and saves it."""
        row = self.model()._default_manager.create(name=self.name)

        def save() -> None:
            row.count += 1
            row.save()

        return save

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()


class PlainSave(Saver):
    """``save()`` of a plain model: the last one to save wins."""

    name = "plain save()"
    kind = "baseline"

    def model(self) -> Any:
        """Return a plain model."""
        from .orm.models import Plain

        return Plain


class OurSave(Saver):
    """``save()`` of a `VersionedModel`."""

    name = "VersionedModel.save()"
    kind = "ours"

    def model(self) -> Any:
        """Return a versioned model."""
        from .orm.models import Versioned

        return Versioned


class ConcurrencySave(Saver):
    """``save()`` of a model with django-concurrency's version."""

    name = "django-concurrency save()"
    kind = "alternative"
    needs = ("concurrency",)
    apps = ("concurrency", "benchmarks.concurrent")

    def model(self) -> Any:
        """Return the model of an app that is installed only with django-concurrency."""
        from .concurrent.models import Record

        return Record


SAVERS: tuple[type[Saver], ...] = (OurSave, PlainSave, ConcurrencySave)


def savers() -> list[Saver]:
    """Return those whose modules are installed."""
    return [kind() for kind in SAVERS if not kind.missing()]


def absent_savers() -> dict[str, list[str]]:
    """Return the others, and which modules each of them needs."""
    return {kind.name: kind.missing() for kind in SAVERS if kind.missing()}
