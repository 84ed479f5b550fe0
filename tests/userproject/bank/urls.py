"""The views of the bank."""

from __future__ import annotations

from django.urls import path

from . import views

urlpatterns = [
    path("<int:pk>/deposit/", views.deposit),
    path("<int:pk>/deposit-by-hand/", views.deposit_by_hand),
    path("<int:pk>/deposit-async/", views.deposit_async),
]
