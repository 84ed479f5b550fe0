"""Locks around views: `locked_view`."""

from __future__ import annotations

from .decorator import locked_view

__all__ = ["locked_view"]
