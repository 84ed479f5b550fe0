"""Models, managers and migrations that would let a stale writer through, and what is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.questioner import MigrationQuestioner
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.test.utils import isolate_apps

from django_distlock.versions import (
    VersionedManager,
    VersionedModel,
    VersionedQuerySet,
    VersionField,
)
from tests.versions.models import ALL, Country, Fruit, Item, Thing
from tests.versions.tools import refused, values


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    """Keep the models of a test out of the registry."""
    with isolate_apps("tests.versions"):
        yield


def ids(found: list[CheckMessage]) -> list[str]:
    return [str(each.id) for each in found if str(each.id).startswith("distlock")]


def test_the_models_of_these_tests_are_in_order() -> None:
    checked: list[type[models.Model]] = [*ALL, Fruit]
    for model in checked:
        assert ids(model.check()) == []


def test_the_field_without_the_base_class(store: str) -> None:
    class Bare(models.Model):
        version = VersionField()

        class Meta:
            app_label = "versions"
            apps = apps

        def __str__(self) -> str:
            return str(self.pk)

    assert ids(Bare.check()) == ["distlock.E020"]
    with connections[store].schema_editor() as editor:
        editor.create_model(Bare)
    try:
        bare = Bare(pk=1)
        bare.save_base(raw=True, using=store)
        with pytest.raises(ImproperlyConfigured, match=r"versions.Bare has the VersionField"):
            bare.save()
    finally:
        with connections[store].schema_editor() as editor:
            editor.delete_model(Bare)
        del apps.all_models["versions"]["bare"]
        apps.clear_cache()


def test_the_base_class_without_the_field() -> None:
    class Bare(VersionedModel):
        version = None  # type: ignore[assignment]

    class Twice(VersionedModel):
        second = VersionField()

    assert ids(Bare.check()) == ids(Twice.check()) == ["distlock.E022"]
    for thing in (Bare(pk=1), Twice(pk=1)):
        for write in (thing.save, thing.delete):
            with pytest.raises(ImproperlyConfigured, match="declare one"):
                write()
    with pytest.raises(ImproperlyConfigured, match="declare one"):
        Bare.objects.update(pk=2)


@pytest.mark.parametrize("options", [{"null": True}, {"unique": True}, {"editable": False}])
def test_options_that_break_it(options: dict[str, Any]) -> None:
    class Wrong(VersionedModel):
        version = VersionField(**options)

    assert ids(Wrong.check()) == ["distlock.E021"]


def test_managers() -> None:
    class Plain(VersionedModel):
        objects = models.Manager()  # type: ignore[assignment]

    class Query(VersionedQuerySet[Any]):
        pass

    class Mine(VersionedManager[Any]):
        pass

    class Good(VersionedModel):
        objects = Mine()
        others = Query.as_manager()

        class Meta:
            default_manager_name = "others"

    class Last(Thing, VersionedModel):
        pass

    assert ids(Plain.check()) == ["distlock.W020"]
    assert ids(Good.check()) == []
    assert Good._default_manager.name == "others"
    assert ids(Last.check()) == ["distlock.W020"]
    assert Plain._base_manager.name == "versioned"


def test_migrations(store: str) -> None:
    """The field is written short, and models of a migration can be saved."""
    path, arguments, options = Item._meta.get_field("version").deconstruct()[1:]
    assert path == "django_distlock.versions.fields.VersionField"
    assert (arguments, options) == ([], {})
    states = ProjectState()
    for model in (Item, Country):
        states.add_model(ModelState.from_model(model, exclude_rels=True))
    asked = MigrationQuestioner(specified_apps={"versions"})
    changes = MigrationAutodetector(ProjectState(), states, asked).changes(MigrationGraph())
    [migration] = changes["versions"]
    text = MigrationWriter(migration).as_string()
    assert "django_distlock.versions.fields.VersionField(default=0)" not in text
    assert "VersionField()" in text

    old = states.apps.get_model("versions", "Country")
    row = old.objects.using(store).create(code="de", name="a")
    mine = Country.objects.using(store).get()
    assert mine.revision > 0
    row.name = "b"
    row.save()
    assert values(Country, store, "revision", "name") == [(mine.revision + 1, "b")]


def test_rows_from_before_the_column(store: str) -> None:
    class Old(VersionedModel):
        name = models.CharField(max_length=10)

        class Meta:
            app_label = "versions"
            db_table = "versions_old"

    with connections[store].schema_editor() as editor:
        editor.execute("CREATE TABLE versions_old (id integer PRIMARY KEY, name varchar(10))")
        editor.execute("INSERT INTO versions_old VALUES (1, 'a')")
        editor.add_field(Old, Old._meta.get_field("version"))
    try:
        mine, theirs = Old.objects.using(store).get(), Old.objects.using(store).get()
        assert mine.version == 0
        theirs.save()
        with refused(mine):
            mine.save()
        theirs.save()
        assert values(Old, store, "version") == [2]
    finally:
        with connections[store].schema_editor() as editor:
            editor.delete_model(Old)
