"""Errors of the embedded server, as part of the project's error hierarchy."""

from tarry.core.errors import EmbeddedError

__all__ = ["EmbeddedError"]
