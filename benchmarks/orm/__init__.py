"""The app of the model that a project would write for itself."""

from __future__ import annotations
