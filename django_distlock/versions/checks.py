"""A check that the admin's forms carry the version: without it they overwrite what others wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, register

from ..core import checking
from .fields import fields_of
from .models import VersionedModel

__all__ = ["check_admin_forms"]


@register("distlock")
def check_admin_forms(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of admin classes whose options drop the version from their forms."""
    return [
        checking.warning(
            f"{type(options).__name__}.{option} drops {name!r} from the form: saving it "
            f"overwrites what others have written to {options.model._meta.label} meanwhile.",
            hint=f"Keep {name!r} in the form, where it is a hidden input.",
            obj=type(options),
            id="distlock.W021",
        )
        for options in _admins()
        if issubclass(options.model, VersionedModel)
        for name in [field.name for field in fields_of(options.model)]
        for option in _dropping(options, name)
    ]


def _admins() -> Iterator[Any]:
    """Yield what is registered on any admin site, and the inlines in it."""
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.sites import all_sites

    for site in all_sites:
        for model in apps.get_models():
            if site.is_registered(model):
                options = site.get_model_admin(model)
                yield options
                for inline in options.inlines:
                    yield inline(model, site)


def _dropping(options: Any, name: str) -> Iterator[str]:
    """Yield the options of one admin class, as they are written, that leave a field out."""
    from django.contrib.admin.utils import flatten_fieldsets

    if name in (options.readonly_fields or ()):
        yield "readonly_fields"
    if name in (options.exclude or ()):
        yield "exclude"
    if options.fieldsets:
        if name not in flatten_fieldsets(options.fieldsets):
            yield "fieldsets"
    elif options.fields:
        if name not in flatten_fieldsets([(None, {"fields": options.fields})]):
            yield "fields"
    elif hasattr(options.form, "_meta") and name not in options.form.base_fields:
        yield "form"
    editable = getattr(options, "list_editable", ())
    if editable and name not in editable:
        yield "list_editable"
