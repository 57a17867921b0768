"""Validation of holds from outside: kept by a program, or given on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages import Failure, Hold
from tarry.handles.texts import checked_text


def checked_holds(holds: Sequence[Hold]) -> Sequence[Hold]:
    for hold in holds:
        if not isinstance(hold, Hold):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"what is settled is a Hold, not {type(hold).__name__}", hint="give delivery.hold")
        limits.check_key(hold.key)
        if not isinstance(hold.token, UUID):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a token is a UUID, as a delivery has it, not {type(hold.token).__name__}")
    return holds


def checked_failures(failures: Sequence[Failure]) -> Sequence[Failure]:
    for failure in failures:
        if not isinstance(failure, Failure):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(
                f"what failed is a Failure, not {type(failure).__name__}", hint="give Failure(delivery.hold, error)"
            )
        checked_text(failure.error, "error")
        if failure.delay is not None:
            limits.check_delay(failure.delay, "delay")
    checked_holds([failure.hold for failure in failures])
    return failures
