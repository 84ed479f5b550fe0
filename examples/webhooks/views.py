"""What the payment provider calls, perhaps twice, and from several of its machines at once."""

from __future__ import annotations

import json

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_distlock import Lease, lock_for, requires_fence

from .models import Subscription


@csrf_exempt
@require_POST
def receive(request: HttpRequest, subscription: str) -> JsonResponse:
    """Apply an event to a subscription, one after the other; a known one changes nothing."""
    event = json.loads(request.body)
    found = get_object_or_404(Subscription, reference=subscription)
    with lock_for(found, wait=5) as lease:
        found.refresh_from_db()
        if event["id"] not in found.events:
            apply(found, event, lease=lease)
    return JsonResponse({"state": found.state, "events": len(found.events)})


@requires_fence
def apply(subscription: Subscription, event: dict[str, str], *, lease: Lease) -> None:
    """Write what the event says; FenceRejectedError if a later worker has written since."""
    subscription.events.append(event["id"])
    subscription.state = event["state"]
    lease.save(subscription)
