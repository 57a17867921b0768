"""Batch settling: many leases of a queue in one call."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.api.validation import checked_due, checked_failures, checked_lease_ids, checked_text
from tarry.core import limits
from tarry.core.messages.model import BuryReason, Failure, LeaseId
from tarry.core.messages.outcomes import Settled
from tarry.core.messages.retry import Retry, check_retry
from tarry.core.ports import AsyncStore


class AsyncLeases:
    """`queue.leases`: the verbs of a delivery for any number of leases, with one result per lease in the given order."""

    def __init__(self, store: AsyncStore, queue: str) -> None:
        self._store = store
        self._messages = store.messages
        self._queue = queue

    async def ack(self, lease_ids: Sequence[LeaseId], *, conn: Any = None) -> list[Settled]:
        return await self._store.run(self._messages.ack(self._queue, checked_lease_ids(lease_ids)), conn)

    async def nack(self, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None) -> list[Settled]:
        """`retry` overrides the queue's policy and number of attempts, but not a message's own."""
        return await self._store.run(
            self._messages.nack(self._queue, checked_failures(failures), retry=check_retry(retry)), conn
        )

    async def touch(
        self, lease_ids: Sequence[LeaseId], lease_for: timedelta | None = None, *, conn: Any = None
    ) -> list[Settled]:
        checked = None if lease_for is None else limits.check_lease_for(lease_for)
        return await self._store.run(
            self._messages.touch(self._queue, checked_lease_ids(lease_ids), lease_for=checked), conn
        )

    async def release(
        self,
        lease_ids: Sequence[LeaseId],
        *,
        at: datetime | None = None,
        after: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        """Release without counting the attempt: ready immediately, or due `at` an instant or `after` a while."""
        due_at, after = checked_due(at, after)
        return await self._store.run(
            self._messages.release(self._queue, checked_lease_ids(lease_ids), due_at=due_at, after=after), conn
        )

    async def bury(
        self, lease_ids: Sequence[LeaseId], error: str | None = None, *, reason: BuryReason = "buried", conn: Any = None
    ) -> list[Settled]:
        text = checked_text(error, "error")
        return await self._store.run(
            self._messages.bury(self._queue, checked_lease_ids(lease_ids), error=text, reason=reason), conn
        )
