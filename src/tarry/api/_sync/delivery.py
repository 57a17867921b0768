# Generated from src/tarry/api/delivery.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.delivery`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tarry.api.delivery import DeliveredMessage
from tarry.core.errors import StoreUnavailable
from tarry.core.messages.failures import described
from tarry.core.messages.model import Failure
from tarry.core.messages.outcomes import Settled

if TYPE_CHECKING:
    from tarry.api._sync.queue import Queue

P = TypeVar("P")


class Delivery(DeliveredMessage[P]):
    """A delivery. As a context manager: ack on success; on an exception nack with the error and re-raise it.

    A `BaseException` such as Ctrl-C or a cancelled task releases the message without counting the attempt."""

    _queue: Queue[Any]

    @property
    def queue(self) -> str:
        return self._queue.name

    def ack(self, *, conn: Any = None) -> Settled:
        return self._settle("ack", conn, lambda: self._queue.leases.ack([self.lease_id], conn=conn))

    def nack(self, error: str | None = None, *, after: timedelta | None = None, conn: Any = None) -> Settled:
        failure = Failure(self.lease_id, error, after)
        return self._settle("nack", conn, lambda: self._queue.leases.nack([failure], conn=conn))

    def touch(self, lease_for: timedelta | None = None, *, conn: Any = None) -> Settled:
        """Prolong the lease. `BUSY`: another transaction has locked the message, and `lease_until` is unchanged."""
        return self._queue.leases.touch([self.lease_id], lease_for, conn=conn)[0]

    def release(self, *, at: datetime | None = None, after: timedelta | None = None, conn: Any = None) -> Settled:
        return self._settle(
            "release", conn, lambda: self._queue.leases.release([self.lease_id], at=at, after=after, conn=conn)
        )

    def bury(self, error: str | None = None, *, conn: Any = None) -> Settled:
        return self._settle("bury", conn, lambda: self._queue.leases.bury([self.lease_id], error, conn=conn))

    def _settle(self, verb: str, conn: Any, settle: Callable[[], list[Settled]]) -> Settled:
        self.unconfirmed = verb
        try:
            outcome = settle()[0]
        except StoreUnavailable:
            raise  # the store may have settled the message
        except Exception:
            self.unconfirmed = None
            raise
        self.settled, self.unconfirmed = outcome, None if conn is None else verb
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.settled is not None:
            return
        if error is None:
            self.ack()
        elif isinstance(error, Exception):
            self.nack(described(error))
        else:
            # The task is being cancelled: the release must not be cancelled with it.
            self.release()
