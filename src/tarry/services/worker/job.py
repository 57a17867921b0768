"""A message with its lease, while a handler processes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import Any

from tarry.api.delivery import AsyncDelivery
from tarry.api.queue import AsyncQueue
from tarry.services.worker.handlers import Handler
from tarry.services.worker.results import Handled, HandlerResult
from tarry.services.worker.signatures import AnyDelivery

_BEAT = 1 / 3
"""Share of a lease after which it is prolonged: two more beats may fail before it is lost."""
AGAIN = 1 / 12
"""Share of a lease after which a failed beat is retried."""


class JobPhase(IntEnum):
    """Progress of a job. The handler may still run while the substitute settles."""

    WAITING = 0
    CALLING = 1
    """The handler runs."""
    CALLED = 2
    SETTLING = 3
    DEAD = 4
    """The message is a dead letter, and its `on_dead` function runs."""
    DONE = 5
    """The message is settled or lost."""


class Job:
    # Class attributes as defaults: an ordinary job sets few of them.
    task: Any = None
    """The task that runs the handler, and settles the message unless the substitute does."""
    context: Any = None
    """The context of that task."""
    substitute: Any = None
    """The task that waits for an interrupted handler and settles the message if the handler does not finish in time."""
    phase = JobPhase.WAITING
    is_substituted = is_beating = False
    """The substitute settles the message; a touch is pending."""
    is_stopped = timed_out = False
    """The worker stops without waiting for threads; the handler took too long."""
    has_slot = False
    """The job counts as a running handler."""
    is_in_batch = is_repeated = False
    """It is acked in a batch, see `Acks`; an earlier settle was interrupted and may have been executed."""
    lost: str | None = None
    """Why the lease is lost; a lost message is not settled."""
    result = HandlerResult.LOST
    started = False
    started_s = took_s = 0.0
    error: BaseException | None = None
    detail: str | None = None
    is_dead = False
    next_at: datetime | None = None

    def __init__(
        self, queue: AsyncQueue[Any], delivery: AsyncDelivery[Any], handler: Handler, interrupt: Callable[[Job], None]
    ) -> None:
        self.queue = queue
        self.delivery = delivery
        self.handed: AnyDelivery = delivery
        """The delivery given to the handler, which may settle the message itself."""
        self.handler = handler
        self._interrupt = interrupt
        # The database reads its clock twice for a lease. Unrounded, a lease of 1 s would be prolonged by 0.999999 s,
        # which is rejected, and no two leases would share a touch.
        self.span_s = round(delivery.lease_for.total_seconds(), 3)
        self.prolonged(delivery.polled_s)

    def prolonged(self, sent_s: float) -> None:
        self.expires_s = sent_s + self.span_s
        self.next_s = sent_s + self.span_s * _BEAT

    def busy(self, sent_s: float) -> None:
        """Another transaction had locked the message when the touch was sent. Until it commits, no other consumer can lease
        the message, even after its lease has expired. From `sent_s`: a late response proves nothing about the time since."""
        self.next_s = sent_s + self.span_s * AGAIN
        self.expires_s = max(self.expires_s, sent_s + self.span_s * _BEAT)

    def is_over(self, now_s: float) -> bool:
        return now_s >= self.expires_s

    @property
    def settling_task(self) -> Any:
        return self.substitute if self.is_substituted else self.task

    @property
    def is_settled(self) -> bool:
        """Confirmed as settled by the handler: there is no lease left to prolong or lose."""
        return self.handed.settled is not None and self.handed.unconfirmed is None

    def lose(self, why: str) -> None:
        self.lost = self.lost or why
        self._interrupt(self)

    def stop(self) -> None:
        """Cancel a running handler and release its message, because the worker stops."""
        self.is_stopped = True
        self._interrupt(self)

    @property
    def handled(self) -> Handled:
        return Handled(
            delivery=self.handed,
            queue=self.queue.name,
            handler=self.handler.name,
            result=self.result,
            took_s=self.took_s,
            started=self.started,
            error=self.error,
            detail=self.detail,
            dead=self.is_dead,
            next_at=self.next_at,
        )
