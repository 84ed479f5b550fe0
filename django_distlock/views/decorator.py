"""`locked_view`: a view that runs under a lock."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.contrib.auth import SESSION_KEY
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.functional import LazyObject, empty
from django.views import View

from ..core import flow
from ..core.durations import UNSET, Duration, Unset, Wait, check_wait
from ..core.holder import Caller, place_of, taken_by
from ..current import LeaseArgument, running_under, signature_of
from ..decorators import (
    Name,
    arguments_of,
    check_fields,
    check_function,
    done,
    fill,
    is_coroutine,
    refuse_bare,
)
from ..exceptions import (
    InvalidLockError,
    LockBackendError,
    LockNotAcquiredError,
    LockNotHeldError,
)
from ..lease import Lease
from ..lock import Lock, lock
from . import rest
from .answers import RETRY_AFTER, STATUSES, answer, seconds_of
from .atomic import (
    atomically,
    atomically_instead,
    below,
    opt_out,
    owner_of,
    refuse_async,
    refuse_inside,
    stay_in,
)
from .streams import hold_until_sent

__all__ = ["LockedView", "caller_of", "locked_view"]

USER = 150  # characters of a user's name, as many as Django's own may have


def caller_of(request: HttpRequest, view: Callable[..., Any]) -> Caller:
    """Return for whom ``view`` takes its lock, without asking a database for it."""
    owner = owner_of(view)
    if isinstance(owner, View):
        kind = type(owner)
        name = f"{kind.__module__}.{kind.__qualname__}"
        method = (request.method or "").lower()
        if method in owner.http_method_names:
            view = getattr(owner, method, view)
    else:
        name = f"{view.__module__}.{getattr(view, '__qualname__', type(view).__qualname__)}"
    match = getattr(request, "resolver_match", None)
    return Caller(place_of(view), getattr(match, "view_name", None) or name, _user(request))


def _user(request: HttpRequest) -> str:
    """Return the user's name if it is loaded, or the id that a loaded session has, or nothing."""
    user = getattr(request, "_acached_user", None) or getattr(request, "user", None)
    if isinstance(user, LazyObject) and user._wrapped is empty:
        user = getattr(request, "_cached_user", None)
    if user is not None:
        get_username = getattr(user, "get_username", None)
        return str(get_username())[:USER] if callable(get_username) else ""
    session = getattr(getattr(request, "session", None), "_session_cache", None)
    known = session.get(SESSION_KEY) if isinstance(session, dict) else None
    return "" if known is None else f"id {known}"[:USER]


logger = logging.getLogger("django_distlock")

V = TypeVar("V", bound=Callable[..., Any])

View_ = Callable[..., Any]
Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]
Binder = Callable[[HttpRequest, Args, Kwargs], Lock]
OnContention = int | Callable[..., Any]
OnLost = Literal["error", "ignore"]


class _Lost(Exception):
    """The lease was lost while the view ran: raised inside its transaction, to undo it."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.response = response


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedView:
    """A decorator of views; a plain value, made by `locked_view`."""

    lock: Lock
    on_contention: OnContention
    on_lost: OnLost
    methods: frozenset[str] | None
    retry_after: float | None

    def __call__(self, view: V) -> V:
        """Return ``view``, a function or a method given by `method_decorator`, under the lock."""
        return self.around(view, {})

    def around(self, view: V, also: Mapping[str, Callable[[], object]]) -> V:
        """Return ``view`` under the lock, whose name may also have the fields ``also``.

        Each is a function that returns the field's value, called where the template has the field.
        """
        if isinstance(view, type):
            raise InvalidLockError(
                f"{view.__name__} is a class. Write "
                "@method_decorator(locked_view(...), name='dispatch') above it",
                alias=self.lock.using,
            )
        argument = LeaseArgument(view, _signature(view))
        bind = self._binder(argument.signature, also)
        owner = owner_of(view)
        if isinstance(owner, View):
            # A method_decorator decorates again for each request, so this has to be quick. The
            # dispatch of a class with asynchronous handlers is a plain function.
            asynchronous = iscoroutinefunction(view) or owner.view_is_async
        else:
            check_function(view)
            asynchronous = is_coroutine(view)
        if asynchronous:
            return cast("V", self._asynchronous(view, bind, argument))
        return cast("V", self._synchronous(view, bind, argument))

    # -- the two modes ----------------------------------------------------------------------------

    def _synchronous(self, view: View_, bind: Binder, argument: LeaseArgument) -> View_:
        @functools.wraps(view)
        def run(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            self._check(request)
            if not self._locks(request):
                given, named = argument.filled([None], (request, *args), kwargs)
                free = atomically(request, names, view) if begins else view
                return free(*given, **named)
            refuse_inside(request, names, view, self._template(), self.lock.using)
            bound = bind(request, args, kwargs)
            try:
                with taken_by(caller_of(request, view)):
                    lease = flow.run(bound._obtain(UNSET))
            except LockNotAcquiredError as error:
                return self._refused(error, request, args, kwargs)
            except LockBackendError as error:
                return self._unavailable(error, request)
            request.lease = lease  # type: ignore[attr-defined]

            def body(*args: Any, **kwargs: Any) -> Any:
                args, kwargs = argument.filled([lease], args, kwargs)
                with running_under([lease]):
                    return self._kept(lease, done(view(*args, **kwargs), view))

            try:
                begun = atomically(request, names, body) if begins else body
                response = begun(request, *args, **kwargs)
                if rest.is_renderable(response):
                    response = response.render()
                if isinstance(response, StreamingHttpResponse):
                    hold_until_sent(response, lease, strict=self.on_lost == "error")
                    return response
            except _Lost as lost:
                response = lost.response
            except BaseException as error:
                flow.run(lease._leave(error))
                raise
            try:
                flow.run(lease._leave(None))
            except (LockNotHeldError, LockBackendError) as error:
                return self._ended(error, request, response)
            return response

        argument.hidden_from(run)
        # Not the wrapper itself in its own closure: a ring for each request of a method_decorator.
        names = opt_out(run, view)
        begins = names is not getattr(view, "_non_atomic_requests", None)
        return run

    def _asynchronous(self, view: View_, bind: Binder, argument: LeaseArgument) -> View_:
        @functools.wraps(view)
        async def arun(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            self._check(request)
            refuse_async(request, names)
            if not self._locks(request):
                given, named = argument.filled([None], (request, *args), kwargs)
                response = view(*given, **named)
                return await response if inspect.isawaitable(response) else response
            try:
                bound = bind(request, args, kwargs)
            except SynchronousOnlyOperation:
                # The name asks the database, as {request.user.pk} does.
                bound = await sync_to_async(bind)(request, args, kwargs)
            try:
                with taken_by(caller_of(request, view)):
                    lease = await flow.arun(bound._obtain(UNSET))
            except LockNotAcquiredError as error:
                instead: Any = self.on_contention
                if is_coroutine(instead):
                    return self._late(error, await instead(error, request, *args, **kwargs))
                return await sync_to_async(self._refused)(error, request, args, kwargs)
            except LockBackendError as error:
                return await sync_to_async(self._unavailable)(error, request)
            request.lease = lease  # type: ignore[attr-defined]
            given, named = argument.filled([lease], (request, *args), kwargs)
            try:
                with running_under([lease]):
                    response = view(*given, **named)
                    if inspect.isawaitable(response):
                        response = await response
                response = self._kept(lease, response)
                if rest.is_renderable(response):
                    response = await sync_to_async(response.render, thread_sensitive=True)()
                if isinstance(response, StreamingHttpResponse):
                    hold_until_sent(response, lease, strict=self.on_lost == "error")
                    return response
            except _Lost as lost:
                response = lost.response
            except GeneratorExit:
                lease._drop()
                raise
            except BaseException as error:
                await flow.arun(lease._leave(error))
                raise
            try:
                await flow.arun(lease._leave(None))
            except (LockNotHeldError, LockBackendError) as error:
                return await sync_to_async(self._ended)(error, request, response)
            return response

        argument.hidden_from(arun)
        names = stay_in(arun)
        return arun

    # -- before ------------------------------------------------------------------------------------

    def _template(self) -> str:
        return (
            getattr(self.lock.name, "__name__", "a callable")
            if callable(self.lock.name)
            else self.lock.name
        )

    def _locks(self, request: HttpRequest) -> bool:
        return self.methods is None or request.method in self.methods

    def _check(self, request: object) -> None:
        if not hasattr(request, "META"):
            raise InvalidLockError(
                f"A view is called with a request, not with {type(request).__name__}. On a method "
                "use @method_decorator(locked_view(...), name='dispatch')",
                name=self._template(),
                alias=self.lock.using,
            )

    def _binder(
        self, signature: inspect.Signature, also: Mapping[str, Callable[[], object]]
    ) -> Binder:
        """Return a function that makes the lock of a call, named after the request and the URL."""
        name, using = self.lock.name, self.lock.using
        if callable(name):

            def made(request: HttpRequest, args: Args, kwargs: Kwargs) -> Lock:
                call = functools.partial(name, request, *args, **kwargs)
                return self.lock._filled(fill(call, {}, using))

            return made
        used = check_fields(name, signature, using, also=("request", *also))

        def filled(request: HttpRequest, args: Args, kwargs: Kwargs) -> Lock:
            arguments = arguments_of(signature, (request, *args), kwargs)
            more = {field: value() for field, value in also.items() if field in used}
            return self.lock._bound_to({**arguments, **more, "request": request})

        return filled

    # -- instead and after -------------------------------------------------------------------------

    def _refused(
        self,
        error: LockNotAcquiredError,
        request: HttpRequest,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the response for a lock that another process holds."""
        if not callable(self.on_contention):
            return answer(request, "held", self.on_contention, self._seconds(error))
        called: View_ = self.on_contention
        instead = async_to_sync(called) if is_coroutine(called) else called
        response = atomically_instead(called, instead)(error, request, *args, **kwargs)
        return self._late(error, response)

    def _late(self, error: LockNotAcquiredError, response: Any) -> Any:
        """Add the header that says when to try again, where it is missing and has a meaning."""
        seconds = self._seconds(error)
        if seconds is not None and getattr(response, "status_code", None) in STATUSES:
            response.setdefault("Retry-After", str(seconds))
        return response

    def _seconds(self, error: LockNotAcquiredError) -> int | None:
        """Return after how many seconds the client may try again."""
        return None if self.retry_after is None else seconds_of(error, self.retry_after)

    def _unavailable(self, error: LockBackendError, request: HttpRequest) -> HttpResponse:
        logger.error("The view was not run: %s", error, exc_info=error)
        return answer(request, "unavailable")

    def _kept(self, lease: Lease, response: Any) -> Any:
        """Return what the view has returned, unless it ran without the lock in the end."""
        if self.on_lost == "error" and lease.lost:
            raise _Lost(response)
        return response

    def _ended(self, error: Exception, request: HttpRequest, response: Any) -> Any:
        """Return the response of a view whose lease could not be released."""
        logger.error("The view has ended: %s", error)
        # A store that fails at the release takes nothing away from what was done under the lock.
        if isinstance(error, LockBackendError) or self.on_lost == "ignore":
            return response
        # Files and the like of the response that is not sent.
        for close in getattr(response, "_resource_closers", ()):
            close()
        return answer(request, "lost")


def locked_view(
    name: Name,
    *,
    using: str = "default",
    ttl: Duration | Unset = UNSET,
    wait: Wait = 0,
    renew: bool | Unset = UNSET,
    reentrant: bool | Unset = UNSET,
    max_hold: Wait = UNSET,
    min_hold: Duration | None = None,
    shared: bool = False,
    limit: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    methods: Collection[str] | None = None,
    on_contention: OnContention = 409,
    retry_after: Duration | None = RETRY_AFTER,
    on_lost: OnLost = "error",
) -> LockedView:
    """Return a decorator that runs a view, sync or async, under a lock.

    - ``name``: a template over ``request`` and the URL's arguments, such as
      ``"export:{request.user.pk}"`` or ``"invoice:{pk}"``, or a callable that is given what the
      view is given and returns the name.
    - ``wait``: seconds or timedelta to wait for the lock, each of which occupies a worker.
    - ``methods``: the request methods that take the lock, such as ``["POST"]``; the others run
      without it, and their lease is None. None: every method.
    - ``on_contention``: the status of the response when the lock is not obtained: 409, 423, 429 or
      503. Or another view, sync or async, which is called in its place with the
      LockNotAcquiredError before the request.
    - ``retry_after``: seconds or timedelta that a client is told to wait before it tries again
      (the header Retry-After), less where the holder's lease ends before; None: no header.
    - ``on_lost``: ``"error"`` answers 503 when the lease was lost before the view had ended, and
      rolls the transactions of ATOMIC_REQUESTS back; ``"ignore"`` sends the view's own response.
    - The others are those of `lock`.

    The transactions of ATOMIC_REQUESTS begin after the lock was obtained and end before it is
    released. A TemplateResponse is rendered under the lock; a streaming response holds it until it
    has been sent or closed. The view finds its lease by `current_lease`, in ``request.lease``, and
    in a parameter annotated `Lease`. When the store fails the response is 503, and the view is not
    run. On a class:
    ``@method_decorator(locked_view(...), name="dispatch")``. In an API view of Django REST
    framework these answers are APIExceptions, and its Response is rendered after the release.
    Raises InvalidLockError for options out of range, and for a template that names what the view is
    not given.
    """
    if not callable(on_contention) and (
        isinstance(on_contention, bool) or on_contention not in STATUSES
    ):
        raise InvalidLockError(
            f"on_contention is one of {', '.join(map(str, STATUSES))}, or a view that is called "
            f"instead, not {on_contention!r}",
            alias=using,
        )
    refuse_bare("locked_view", name)
    if methods is not None and (
        isinstance(methods, str) or not all(isinstance(each, str) for each in methods)
    ):
        raise InvalidLockError(
            f"methods are several, such as ['POST'], not {methods!r}", alias=using
        )
    if on_lost not in ("error", "ignore"):
        raise InvalidLockError(f"on_lost is 'error' or 'ignore', not {on_lost!r}", alias=using)
    guard = lock(
        name,
        using=using,
        ttl=ttl,
        wait=wait,
        renew=renew,
        reentrant=reentrant,
        max_hold=max_hold,
        min_hold=min_hold,
        shared=shared,
        limit=limit,
        metadata=metadata,
    )
    return LockedView(
        lock=guard,
        on_contention=on_contention,
        on_lost=on_lost,
        methods=None if methods is None else frozenset(each.upper() for each in methods),
        retry_after=check_wait(retry_after, what="retry_after"),
    )


def _signature(view: View_) -> inspect.Signature:
    """Return the signature of a view as it is called, without ``self``."""
    for each in below(view):
        if inspect.ismethod(each):  # else what it wraps would be asked, which has a self
            return _signature_of_method(each.__func__)
    return signature_of(view)


@functools.lru_cache(512)
def _signature_of_method(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature without its first parameter; remembered, as it is asked each request."""
    signature = signature_of(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
