"""Holds as they come from outside: from a program that kept them, or from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages import Hold


def checked_holds(holds: Sequence[Hold]) -> Sequence[Hold]:
    for key, token in holds:
        limits.check_key(key)
        if not isinstance(token, UUID):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a token is a UUID, as a delivery has it, not {type(token).__name__}")
    return holds
