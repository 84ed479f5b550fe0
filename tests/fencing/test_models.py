# ruff: noqa: DJ008 - models of a moment
"""The fields, and what is said of models that have not all that a fence needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.apps import AppConfig
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.migrations.state import ModelState, ProjectState
from django.test.utils import isolate_apps

from django_distlock import (
    FencedManager,
    FenceMarkField,
    FencingTokenField,
)
from django_distlock.checks import check_fences
from django_distlock.fencing.fields import columns_of
from django_distlock.models import FencedModel
from tests.fencing.models import TABLES, Account, Document, Loose, Plain, Proxy, Savings
from tests.fencing.tools import made_up, somebody


def check(*found: type[models.Model]) -> list[str]:
    """Return what `manage.py check` says of models."""
    config = cast("AppConfig", SimpleNamespace(get_models=lambda: found))
    messages = check_fences([config])
    assert all(message.id == "distlock.E023" and message.hint for message in messages)
    return [str(message.msg) for message in messages]


def test_a_model_without_the_fields_says_so_at_first_use() -> None:
    lease = made_up("a")
    for write in (lambda: Plain.objects.fenced(lease), lambda: lease.save(Plain(text="x"))):
        with pytest.raises(ImproperlyConfigured) as caught:
            write()
        for word in ("fencing_tests.Plain", "FencedModel", "FencingTokenField", "makemigrations"):
            assert word in str(caught.value)


def test_and_at_manage_check() -> None:
    assert check(Account, Savings, Proxy, Document) == []
    (said,) = check(Plain)
    assert "fencing_tests.Plain" in said


def test_the_check_is_registered() -> None:
    assert run_checks(tags=["distlock"], databases=[]) is not None
    assert not [m for m in run_checks(tags=["distlock"]) if m.id == "distlock.E023"]


@isolate_apps("tests.fencing")
def test_parts_of_a_fence() -> None:
    class TokenOnly(models.Model):
        token = FencingTokenField()

        class Meta:
            app_label = "fencing"

    class MarkOnly(models.Model):
        mark = FenceMarkField()

        class Meta:
            app_label = "fencing"

    class Two(FencedModel):
        second = FencingTokenField()

        class Meta:
            app_label = "fencing"

    class Split(TokenOnly):
        mark = FenceMarkField()
        objects = FencedManager()

        class Meta:
            app_label = "fencing"

    said = check(TokenOnly, MarkOnly, Two, Split)
    assert len(said) == 4
    for text, words in zip(
        said,
        ("there are: token", "there are: mark", "there are: fence, second", "of two models"),
        strict=True,
    ):
        assert words in text
    with pytest.raises(ImproperlyConfigured, match="tables of two models"):
        columns_of(Split)


def test_a_fence_that_may_be_empty_is_refused() -> None:
    found = [message for message in Loose.check() if message.id == "distlock.E026"]
    assert [message.obj for message in found] == list(Loose._meta.local_fields[-2:])
    assert "FencingTokenField is not null" in found[0].msg
    fine = [each.id for table in (Account, Document) for each in table.check()]
    assert "distlock.E026" not in fine


@isolate_apps("tests.fencing")
def test_a_subclass_of_a_field_is_the_field() -> None:
    class Token(FencingTokenField):
        pass

    class Mine(models.Model):
        mark = FenceMarkField(verbose_name="seal")
        token = Token(db_index=True)

        class Meta:
            app_label = "fencing"

    columns = columns_of(Mine)
    assert (columns.model, columns.token, columns.mark) == (Mine, "token", "mark")


@pytest.mark.parametrize("model", TABLES)
def test_migrations_see_the_same_fields(model: type[models.Model]) -> None:
    """What makemigrations writes makes the same fields again, and their saves keep the fence."""
    for field in model._meta.local_fields:
        if isinstance(field, FencingTokenField | FenceMarkField):
            _, path, args, kwargs = field.deconstruct()
            assert path == f"django_distlock.{type(field).__name__}"
            again = type(field)(*args, **kwargs)
            assert again.deconstruct()[1:] == field.deconstruct()[1:]
            assert (again.get_default(), again.editable) == (field.get_default(), False)
    state = ProjectState()
    for table in TABLES:
        state.add_model(ModelState.from_model(table))
    fields: Any = state.apps.get_model("fencing_tests", model.__name__)._meta.fields
    assert [type(field) for field in fields] == [type(field) for field in model._meta.fields]


def test_forms_and_validation_leave_the_fence_alone() -> None:
    from django.forms import modelform_factory

    form = modelform_factory(Account, fields="__all__")
    assert set(form.base_fields) == {"owner", "balance", "parent"}
    Account(owner="somebody").full_clean(exclude=["parent"])


def test_a_lock_is_told_by_prefix_and_name_alone(name: str) -> None:
    first, second, other = (somebody(each, "dummy") for each in (name, name, name.upper()))
    elsewhere = somebody(name, "locmem")
    marks = [lease._fence().mark for lease in (first, second, other, elsewhere)]
    assert marks[0][:16] == marks[1][:16] == marks[3][:16] != marks[2][:16]
    assert len(set(marks)) == 4
    assert first._hold.claim.owner not in marks[0]
    assert all(len(mark) == FenceMarkField().max_length for mark in marks)
