"""The admin site and its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.urls import path

from django_distlock.versions.admin import VersionedAdmin
from tests.versions.models import Country, Item, Owner

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    Inline = admin.TabularInline[Any, Any]
else:
    ModelAdmin = admin.ModelAdmin
    Inline = admin.TabularInline


class Items(Inline):
    model = Item
    extra = 1


@admin.register(Owner)
class OwnerAdmin(ModelAdmin):
    inlines = (Items,)


@admin.register(Item)
class ItemAdmin(VersionedAdmin, ModelAdmin):
    list_display = ("pk", "name", "version")
    list_editable = ("name", "version")


@admin.register(Country)
class CountryAdmin(ModelAdmin):
    pass


urlpatterns = [path("admin/", admin.site.urls)]
