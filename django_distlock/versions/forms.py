"""The version's way through a form: signed, hidden, and compared before anything is saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from django import forms
from django.core import signing
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import models
from django.forms.boundfield import BoundField
from django.utils.crypto import salted_hmac
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from ..core.text import shown

__all__ = ["VersionFormField"]

SALT = "django_distlock.versions"


class VersionBoundField(BoundField):
    """Renders the token of what the form shows, or the token that was sent and is still true."""

    field: VersionFormField

    def value(self) -> str:
        """Return the token: bound to the model, the row, and its version and values."""
        form = cast("forms.ModelForm[Any]", self.form)
        if not form.is_bound:
            return make_token(form, self.name)
        # After a conflict was shown: of what was shown. Else of what the user has in front of him.
        form.errors  # noqa: B018 - judges the form
        return self.field.seen if self.field.seen is not None else str(self.data or "")


class VersionFormField(forms.Field):
    """The hidden input of a `VersionField` in a ModelForm.

    A conflict is an error of the form, which shows the values that are in the row now; the user's
    input is kept, and sending it again overwrites what was shown. A token that is missing, changed,
    or of another row is an error, too.
    """

    widget = forms.HiddenInput
    bound_field_class = VersionBoundField

    def __init__(self) -> None:
        super().__init__(required=False)
        self.form: Any = None
        self.name = ""
        self.seen: str | None = None

    def get_bound_field(self, form: forms.BaseForm, field_name: str) -> BoundField:
        """Remember the form, whose instance the version is of."""
        if not isinstance(getattr(form, "instance", None), models.Model):
            raise ImproperlyConfigured(f"{type(form).__name__} has a version, but is no ModelForm")
        self.form, self.name = form, field_name
        return VersionBoundField(form, self, field_name)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Tell that the version is nothing that a user changes."""
        return False

    def clean(self, value: Any) -> Any:
        """Return the version that the user has seen, or add the conflict to the form's errors."""
        form, instance = self.form, self.form.instance
        now = getattr(instance, self.name)
        if instance._state.adding:
            return now
        try:
            label, pk, version, digests = signing.loads(value or "", salt=SALT)
        except (signing.BadSignature, ValueError, TypeError):
            label = pk = version = digests = None
        if [label, pk] != _row(instance):
            self.seen = ""  # a reload is needed
            form.add_error(None, ValidationError(_UNKNOWN, code="version_unknown"))
        elif version != now:
            self.seen = make_token(form, self.name)
            form.add_error(None, list(_conflict(form, self.name, digests)))
        return now


_UNKNOWN = _(
    "This form does not tell which version of the row it was made from. Load the page again, "
    "and enter your changes again."
)


def make_token(form: forms.ModelForm[Any], name: str) -> str:
    """Return the signed version of a form's instance, with a short digest of each value."""
    instance = form.instance
    if instance._state.adding:
        return ""
    digests = {field.name: _digest(field, instance) for field in _shown(form, name)}
    return signing.dumps([*_row(instance), getattr(instance, name), digests], salt=SALT)


def _row(instance: models.Model) -> list[str]:
    return [
        cast("type[models.Model]", instance._meta.concrete_model)._meta.label_lower,
        str(instance.pk),
    ]


def _shown(form: forms.ModelForm[Any], name: str) -> Iterator[models.Field[Any, Any]]:
    """Yield the model's columns that the form has inputs for."""
    for field in form.instance._meta.concrete_fields:
        if field.name in form.fields and field.name != name and not field.primary_key:
            yield field


def _digest(field: models.Field[Any, Any], instance: models.Model) -> str:
    """Return a few characters that change with the value, and tell nothing of it."""
    value = f"{field.name}:{field.value_to_string(instance)}"
    return salted_hmac(SALT, value, algorithm="sha256").hexdigest()[:12]


def _conflict(
    form: forms.ModelForm[Any], name: str, digests: dict[str, str]
) -> Iterator[ValidationError]:
    """Yield what to tell the user: that another was faster, and what is there now."""
    yield ValidationError(
        _(
            "Another user has changed this %(what)s while you edited it. Nothing was saved. Your "
            "input is still below: compare it, and save again to overwrite what is shown here."
        ),
        params={"what": form.instance._meta.verbose_name},
        code="version_conflict",
    )
    changed = [f for f in _shown(form, name) if digests.get(f.name) != _digest(f, form.instance)]
    for field in changed:
        label = form.fields[field.name].label or capfirst(field.verbose_name)
        yield ValidationError(
            _("%(label)s is now: %(value)s"),
            params={"label": label, "value": shown(_readable(field, form.instance))},
            code="version_changed",
        )
    if not changed:
        yield ValidationError(
            _("Only what this form does not show was changed."), code="version_changed"
        )


def _readable(field: models.Field[Any, Any], instance: models.Model) -> str:
    """Return a value as a person would read it: the choice's label, the related object."""
    if field.choices is not None and (show := getattr(instance, f"get_{field.name}_display", None)):
        return str(show())
    return str(getattr(instance, field.name))
