"""Why a message is not delivered yet, in sentences."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from tarry.core.messages import StoredMessage
from tarry.core.settings import QueueInfo
from tarry.core.states import State


class Why(NamedTuple):
    deliverable: bool
    reasons: tuple[str, ...]
    deliverable_at: datetime | None
    """When the clock alone will have made it deliverable; None where it needs somebody."""


def why_not_delivered(message: StoredMessage[Any], queue: QueueInfo, now: datetime) -> Why:
    reasons: list[str] = []
    if queue.paused:
        because = f" ({queue.paused_reason})" if queue.paused_reason else ""
        reasons.append(f"queue {queue.name} is paused{because}: resume it")
    if message.state is State.LEASED:
        holder = message.consumer or "somebody"
        reasons.append(f"{holder} holds it; unless it is settled, its lease ends in {_left(message.lease_until, now)}")
    if message.due_at > now:
        failed = f", after failed attempt {message.attempt}" if message.attempt and message.last_error else ""
        reasons.append(f"it is due in {_left(message.due_at, now)}{failed}")
    if not reasons:
        reasons.append("it is deliverable: a consumer that polls gets it when those before it in line are taken")
        return Why(True, tuple(reasons), message.due_at)
    free_at = max(message.due_at, message.lease_until) if message.lease_until else message.due_at
    return Why(False, tuple(reasons), None if queue.paused else free_at)


def _left(until: datetime | None, now: datetime) -> str:
    return "no time" if until is None else str(until - now)
