"""Validation of arguments shared by several verbs: texts, due times, leases."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import Failure, LeaseId


def checked_text(text: object, name: str) -> str | None:
    """Sanitized and clipped for storage: any text is accepted, because reporting a failure must not fail."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be text, not {type(text).__name__}", hint=f"pass {name}=str(…)")
    return limits.clip_error(text)


def checked_due(at: datetime | None, after: timedelta | None) -> tuple[datetime | None, timedelta | None]:
    if at is not None and after is not None:
        raise InvalidInput("give either at or after, not both")
    return None if at is None else limits.check_instant(at), None if after is None else limits.check_delay(after)


def checked_lease_ids(lease_ids: Sequence[LeaseId]) -> Sequence[LeaseId]:
    for lease_id in lease_ids:
        if not isinstance(lease_id, LeaseId):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(
                f"messages are settled by a LeaseId, not {type(lease_id).__name__}", hint="give delivery.lease_id"
            )
        limits.check_key(lease_id.key)
        if not isinstance(lease_id.token, UUID):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a token is a UUID, as a delivery has it, not {type(lease_id.token).__name__}")
    return lease_ids


def checked_failures(failures: Sequence[Failure]) -> Sequence[Failure]:
    for failure in failures:
        if not isinstance(failure, Failure):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(
                f"a nack takes Failure values, not {type(failure).__name__}",
                hint="give Failure(delivery.lease_id, error)",
            )
        checked_text(failure.error, "error")
        if failure.after is not None:
            limits.check_delay(failure.after)
        if failure.due_at is not None:
            limits.check_instant(failure.due_at, "due_at")
    checked_lease_ids([failure.lease_id for failure in failures])
    return failures
