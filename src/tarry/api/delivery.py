"""A leased message with the verbs that settle it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from uuid import UUID

import msgspec

from tarry.core.errors import StoreUnavailable
from tarry.core.messages.failures import described
from tarry.core.messages.model import Failure, Lease, LeaseId
from tarry.core.messages.outcomes import Settled

if TYPE_CHECKING:
    from tarry.api.queue import AsyncQueue

P = TypeVar("P")


class DeliveredMessage(msgspec.Struct, Generic[P], eq=False):
    """The message of a delivery, shared by the blocking and the async class. A struct, as `Lease` is."""

    _queue: Any
    _lease: Lease[P]
    polled_s: float
    """When the poll was sent, by `elapsed_s`: the lease began at this time or later."""
    lost: bool = False
    """Set by the worker when the lease is lost: the handler should stop, its result will be discarded."""
    settled: Settled | None = None
    """The result of the last ack, nack, release or bury; None while unsettled."""
    unconfirmed: str | None = None
    """The verb of a settle whose effect is not certain: it is in flight, its reply was lost, or it belongs to the caller's
    transaction (`conn=`), which may still be rolled back."""

    @property
    def lease(self) -> Lease[P]:
        return self._lease

    @property
    def lease_for(self) -> timedelta:
        return self._lease.lease_until - self._lease.leased_at

    @property
    def key(self) -> str:
        return self._lease.key

    @property
    def payload(self) -> P:
        return self._lease.payload

    @property
    def version(self) -> int:
        return self._lease.version

    @property
    def attempt(self) -> int:
        return self._lease.attempt

    @property
    def redelivered(self) -> bool:
        return self._lease.redelivered

    @property
    def priority(self) -> int:
        return self._lease.priority

    @property
    def type(self) -> str | None:
        return self._lease.type

    @property
    def headers(self) -> Mapping[str, str]:
        return self._lease.headers or {}

    @property
    def due_at(self) -> datetime:
        return self._lease.due_at

    @property
    def leased_at(self) -> datetime:
        return self._lease.leased_at

    @property
    def lease_until(self) -> datetime:
        return self._lease.lease_until

    @property
    def token(self) -> UUID:
        return self._lease.token

    @property
    def lease_id(self) -> LeaseId:
        return LeaseId(self._lease.key, self._lease.token)

    def __repr__(self) -> str:
        # Never the payload or the token: this ends up in logs.
        return f"<{type(self).__name__} {self.key!r} version {self.version} attempt {self.attempt}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Hide the fields from rich tracebacks, which show every field of a struct."""
        return [("key", self.key), ("version", self.version), ("attempt", self.attempt)]


class AsyncDelivery(DeliveredMessage[P]):
    """A delivery. As a context manager: ack on success; on an exception nack with the error and re-raise it.

    A `BaseException` such as Ctrl-C or a cancelled task releases the message without counting the attempt."""

    _queue: AsyncQueue[Any]

    @property
    def queue(self) -> str:
        return self._queue.name

    async def ack(self, *, conn: Any = None) -> Settled:
        return await self._settle("ack", conn, lambda: self._queue.leases.ack([self.lease_id], conn=conn))

    async def nack(self, error: str | None = None, *, after: timedelta | None = None, conn: Any = None) -> Settled:
        failure = Failure(self.lease_id, error, after)
        return await self._settle("nack", conn, lambda: self._queue.leases.nack([failure], conn=conn))

    async def touch(self, lease_for: timedelta | None = None, *, conn: Any = None) -> Settled:
        """Prolong the lease. `BUSY`: another transaction has locked the message, and `lease_until` is unchanged."""
        return (await self._queue.leases.touch([self.lease_id], lease_for, conn=conn))[0]

    async def release(self, *, at: datetime | None = None, after: timedelta | None = None, conn: Any = None) -> Settled:
        return await self._settle(
            "release", conn, lambda: self._queue.leases.release([self.lease_id], at=at, after=after, conn=conn)
        )

    async def bury(self, error: str | None = None, *, conn: Any = None) -> Settled:
        return await self._settle("bury", conn, lambda: self._queue.leases.bury([self.lease_id], error, conn=conn))

    async def _settle(self, verb: str, conn: Any, settle: Callable[[], Awaitable[list[Settled]]]) -> Settled:
        self.unconfirmed = verb
        try:
            outcome = (await settle())[0]
        except StoreUnavailable:
            raise  # the store may have settled the message
        except Exception:
            self.unconfirmed = None
            raise
        self.settled, self.unconfirmed = outcome, None if conn is None else verb
        return outcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.settled is not None:
            return
        if error is None:
            await self.ack()
        elif isinstance(error, Exception):
            await self.nack(described(error))
        else:
            # The task is being cancelled: the release must not be cancelled with it.
            await asyncio.shield(self.release())
