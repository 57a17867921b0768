"""Free text that goes with a verb: why something failed, why a queue is paused."""

from __future__ import annotations

from tarry.core import limits
from tarry.core.errors import InvalidInput


def checked_text(text: object, name: str) -> str | None:
    """Any text is taken, and made fit to be stored: the reason of a failure must not be another failure."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be text, not {type(text).__name__}", hint=f"say {name}=str(…)")
    return limits.clip_error(text)
