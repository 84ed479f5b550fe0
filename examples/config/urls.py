"""The addresses of the examples."""

from __future__ import annotations

from django.urls import path

from partners.views import quote
from webhooks.views import receive

urlpatterns = [
    path("webhooks/<str:subscription>/", receive),
    path("quotes/<str:article>/", quote),
]
