"""Free text with a verb: the error of a failure, the reason of a pause."""

from __future__ import annotations

from tarry.core import limits
from tarry.core.errors import InvalidInput


def checked_text(text: object, name: str) -> str | None:
    """Sanitized and clipped for storage: any text is accepted, because reporting a failure must not fail."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be text, not {type(text).__name__}", hint=f"say {name}=str(…)")
    return limits.clip_error(text)
