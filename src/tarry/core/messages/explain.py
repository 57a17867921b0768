"""Explanation of why a message is not delivered yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tarry.core.durations import roughly
from tarry.core.messages.model import Counted, StoredMessage
from tarry.core.messages.states import State
from tarry.core.settings import QueueInfo
from tarry.core.workers.model import RunningWorker


@dataclass(frozen=True, slots=True)
class Why:
    state: State
    deliverable: bool
    reasons: tuple[str, ...]
    deliverable_at: datetime | None
    """When it becomes deliverable without an action; None if it needs one."""


def why_not_delivered(
    message: StoredMessage[Any],
    queue: QueueInfo,
    now: datetime,
    workers: Iterable[RunningWorker],
    *,
    ahead: Counted | None = None,
    consumers: int = 0,
) -> Why:
    """`ahead`: ready messages delivered before it, if known; `consumers`: known active consumers."""
    reasons: list[str] = []
    if queue.paused:
        because = f" ({queue.paused_reason})" if queue.paused_reason else ""
        reasons.append(f"queue {queue.name} is paused{because}: resume it")
    if message.state is State.LEASED and message.lease_until is not None:
        consumer = message.consumer or "a consumer"
        reasons.append(
            f"{consumer} has leased it; if not settled, the lease ends in {roughly(message.lease_until - now)}"
        )
    if message.due_at > now:
        failed = f", after failed attempt {message.attempt}" if message.attempt and message.last_error else ""
        reasons.append(f"it is due in {roughly(message.due_at - now)}{failed}")
    if not reasons:
        reasons.append("it is deliverable: a consumer that polls gets it after the messages before it")
        if ahead is not None:
            few = {"0": "no ready message is", "1": "1 ready message is"}
            reasons.append(f"{few.get(str(ahead), f'{ahead} ready messages are')} delivered before it")
        if not consumers and not any(queue.name in worker.queues and not worker.is_late(now) for worker in workers):
            reasons.append(
                f"no running worker handles queue {queue.name}: start one (tarry worker); "
                "consumers that poll without a worker are not known"
            )
        return Why(message.state, True, tuple(reasons), message.due_at)
    free_at = max(message.due_at, message.lease_until) if message.lease_until else message.due_at
    return Why(message.state, False, tuple(reasons), None if queue.paused else free_at)
