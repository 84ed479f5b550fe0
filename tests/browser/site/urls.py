"""Addresses of the site."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpResponse
from django.urls import include, path

from .settings import THEME

urlpatterns = [
    path("admin/", admin.site.urls),
    path("favicon.ico", lambda request: HttpResponse(status=204)),
]
if THEME == "grappelli":
    urlpatterns.insert(0, path("grappelli/", include("grappelli.urls")))
