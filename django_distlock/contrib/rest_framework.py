"""Locks and versions for Django REST framework. Needs the extra ``rest_framework``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import InvalidLockError, LockNotAcquiredError, StaleVersionError
from ..versions.fields import VersionField, version_field
from ..views.answers import seconds_of, words_of
from ..views.atomic import OptedOut, atomically, opt_out
from ..views.decorator import LockedView
from ..views.rest import refusal

try:
    from rest_framework import serializers, views
except ImportError as error:
    raise ImproperlyConfigured(
        "django_distlock.contrib.rest_framework needs Django REST framework 3.16 or newer: "
        'pip install "django-distlock[rest_framework]"'
    ) from error

__all__ = ["LockedAPIMixin", "VersionedModelSerializer", "exception_handler"]


class LockedAPIMixin:
    """Lock the handlers of an APIView or a ViewSet, after authentication and permission.

    ``locks`` says which: by the action of a ViewSet, or by the request method in lower case, what
    `locked_view` returns. The name is a template over ``request``, whose user is the one of the
    API, the arguments of the URL, and ``data``: the request's data as the serializer of the view
    validates it, which the handler does once more under the lock. First among the bases::

        class Orders(LockedAPIMixin, ModelViewSet):
            locks = {
                "create": locked_view("order:{data[number]}"),
                "pay": locked_view("order:{pk}", on_contention=423),
            }

    A lock that is held is an APIException of the status ``on_contention``, with Retry-After. The
    transactions of ATOMIC_REQUESTS begin after the lock was obtained, those of the other handlers
    after the permissions were checked. Raises InvalidLockError for a key that is no handler.
    """

    locks: ClassVar[Mapping[str, LockedView]] = {}

    # Of the APIView beside it.
    http_method_names: ClassVar[list[str]]
    kwargs: dict[str, Any]
    request: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for key, locked in cls.locks.items():
            if not isinstance(locked, LockedView):
                raise InvalidLockError(
                    f"{cls.__name__}.locks[{key!r}] is what locked_view() returns, not {locked!r}"
                )
            if not hasattr(cls, key) and key not in getattr(cls, "http_method_names", ()):
                raise InvalidLockError(f"{cls.__name__} has no handler {key!r}, which is in locks")

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Return the view, around which Django begins no transactions: `initial` does."""
        view = super().as_view(*args, **kwargs)  # type: ignore[misc]
        opt_out(view, view)
        return view

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Check authentication, permissions and throttles, then have the handler locked."""
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        method = (request.method or "").lower()
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None:
            return
        locked = self.locks.get(getattr(self, "action", None) or method, self.locks.get(method))
        if locked is not None:
            handler = locked.around(handler, {"data": self._validated})
        elif not isinstance(getattr(handler, "_non_atomic_requests", None), OptedOut):
            handler = atomically(request, OptedOut(), handler)
        setattr(self, method, handler)  # as a ViewSet does with its actions

    def _validated(self) -> Any:
        """Return the data of the request as the view's serializer validates it."""
        view: Any = self
        if not hasattr(view, "get_serializer"):
            raise InvalidLockError(
                f"The name of a lock of {type(self).__name__} has the field 'data', and the view "
                "is no GenericAPIView, which would have a serializer: name the lock by a callable"
            )
        known = (view.lookup_url_kwarg or view.lookup_field) in self.kwargs
        instance = view.get_object() if known else None
        partial = self.request.method == "PATCH"
        serializer = view.get_serializer(instance, data=self.request.data, partial=partial)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data


class VersionedModelSerializer(serializers.ModelSerializer):
    """A ModelSerializer of a `VersionedModel`: an update has to send the version that was read.

    The version field, which is among ``Meta.fields``, is read-only where a row is created. An
    update without it is refused as any missing field is, by PATCH too; one with a version that is
    not the row's any more is answered 409 Conflict, and writes nothing.
    """

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        """Return the class and the arguments of a field: of the version it is required."""
        kind, arguments = super().build_standard_field(field_name, model_field)
        if isinstance(model_field, VersionField):
            arguments = {"read_only": True} if self.instance is None else {"required": True}
        return kind, arguments

    def get_fields(self) -> Any:
        """Return the fields. Raises ImproperlyConfigured where the version is not among them."""
        fields = super().get_fields()
        version = version_field(self.Meta.model).name
        if version not in fields:
            raise ImproperlyConfigured(
                f"{type(self).__name__}.Meta.fields has to have {version!r}: clients send back the "
                "version that they have read"
            )
        return fields

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values, or refuse an update that does not say of which version."""
        values = super().to_internal_value(data)
        version = version_field(self.Meta.model).name
        if self.instance is not None and version not in values:  # in a PATCH nothing is required
            field = self.fields[version]
            raise serializers.ValidationError(
                {version: [field.error_messages["required"]]}, code="required"
            )
        return values

    def update(self, instance: Any, validated_data: dict[str, Any]) -> Any:
        """Save, if the row still is what the client has read."""
        version = version_field(self.Meta.model).name
        seen = validated_data.pop(version)
        if seen != getattr(instance, version):
            raise _stale()
        try:
            return super().update(instance, validated_data)
        except StaleVersionError as error:  # changed since the view has read it
            raise _stale() from error


def exception_handler(error: Exception, context: Any) -> Any:
    """Return the response for an error of an API view: 409 for a held lock and a stale version.

    Set it as REST_FRAMEWORK["EXCEPTION_HANDLER"], or call it from your own. All other errors are
    those of the framework's own handler.
    """
    if isinstance(error, LockNotAcquiredError):
        error = refusal(words_of("held")[1], "held", 409, seconds_of(error))
    elif isinstance(error, StaleVersionError):
        error = _stale()
    return views.exception_handler(error, context)


def _stale() -> Exception:
    return refusal(words_of("stale")[1], "stale", 409, None)
