"""Addresses of the site."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpResponse
from django.urls import include, path

from django_distlock.admin.page import HeldLockAdmin

from .settings import LIMIT, THEME

HeldLockAdmin.limit = LIMIT
urlpatterns = [
    path("admin/", admin.site.urls),
    path("favicon.ico", lambda request: HttpResponse(status=204)),
]
if THEME == "grappelli":
    urlpatterns.insert(0, path("grappelli/", include("grappelli.urls")))
