"""A leased message with the verbs that settle it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar
from uuid import UUID

from tarry.core.errors import StoreUnavailable
from tarry.core.failures import described
from tarry.core.messages import Failure, Hold, Lease
from tarry.core.outcomes import Settled
from tarry.core.retry import Retry

P = TypeVar("P")


class Settling(Protocol):
    """The part of a queue that a delivery needs."""

    @property
    def name(self) -> str: ...
    def ack_many(self, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]: ...
    def nack_many(
        self, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]: ...
    def touch_many(
        self, holds: Sequence[Hold], lease_for: timedelta | None = None, *, conn: Any = None
    ) -> list[Settled]: ...
    def release_many(
        self,
        holds: Sequence[Hold],
        *,
        at: datetime | None = None,
        after: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]: ...
    def bury_many(self, holds: Sequence[Hold], error: str | None = None, *, conn: Any = None) -> list[Settled]: ...


class AsyncSettling(Protocol):
    @property
    def name(self) -> str: ...
    async def ack_many(self, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]: ...
    async def nack_many(
        self, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]: ...
    async def touch_many(
        self, holds: Sequence[Hold], lease_for: timedelta | None = None, *, conn: Any = None
    ) -> list[Settled]: ...
    async def release_many(
        self,
        holds: Sequence[Hold],
        *,
        at: datetime | None = None,
        after: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]: ...
    async def bury_many(
        self, holds: Sequence[Hold], error: str | None = None, *, conn: Any = None
    ) -> list[Settled]: ...


class Handed(Generic[P]):
    """The message of a delivery, shared by the blocking and the async class."""

    __slots__ = ("_lease", "asked_s", "lost", "settled", "unconfirmed")

    def __init__(self, lease: Lease[P], asked_s: float) -> None:
        self._lease = lease
        self.asked_s = asked_s
        """When the lease was requested, by `elapsed_s`: it lasts at least as long as if it had begun then."""
        self.lost = False
        """Set by a worker whose lease on this message is lost: stop, the result will be discarded."""
        self.settled: Settled | None = None
        """The result of the last ack, nack, release or bury; None while unsettled."""
        self.unconfirmed: str | None = None
        """The verb of a settle whose effect is not certain: it is under way, its reply was lost, or it is part of a
        transaction of the caller (`conn=`), which may still be rolled back."""

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
    def hold(self) -> Hold:
        return self._lease.hold

    @contextmanager
    def _settling(self, verb: str, conn: Any) -> Generator[Callable[[list[Settled]], Settled]]:
        """Around a settle. What it gives notes the answer, and returns it."""

        def note(answers: list[Settled]) -> Settled:
            self.settled, self.unconfirmed = answers[0], None if conn is None else verb
            return answers[0]

        self.unconfirmed = verb
        try:
            yield note
        except StoreUnavailable:
            raise  # it may have been done
        except Exception:
            self.unconfirmed = None
            raise

    def __repr__(self) -> str:
        # Never the payload or the token: this ends up in logs.
        return f"<{type(self).__name__} {self.key!r} version {self.version} attempt {self.attempt}>"


class Delivery(Handed[P]):
    """A delivery. As a context manager: ack on success; on an exception nack with the error and re-raise it.

    Anything else than an `Exception` (Ctrl-C, a cancelled task) releases the message without counting the attempt.
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: Settling, lease: Lease[P], asked_s: float) -> None:
        super().__init__(lease, asked_s)
        self._queue = queue

    @property
    def queue(self) -> str:
        return self._queue.name

    def ack(self, *, conn: Any = None) -> Settled:
        with self._settling("ack", conn) as note:
            return note(self._queue.ack_many([self.hold], conn=conn))

    def nack(self, error: str | None = None, *, delay: timedelta | None = None, conn: Any = None) -> Settled:
        with self._settling("nack", conn) as note:
            return note(self._queue.nack_many([Failure(self.hold, error, delay)], conn=conn))

    def touch(self, lease_for: timedelta | None = None, *, conn: Any = None) -> Settled:
        """Hold it for longer. `BUSY`: another transaction has locked the message, and the lease ends when it did before."""
        return self._queue.touch_many([self.hold], lease_for, conn=conn)[0]

    def release(self, *, at: datetime | None = None, after: timedelta | None = None, conn: Any = None) -> Settled:
        with self._settling("release", conn) as note:
            return note(self._queue.release_many([self.hold], at=at, after=after, conn=conn))

    def bury(self, error: str | None = None, *, conn: Any = None) -> Settled:
        with self._settling("bury", conn) as note:
            return note(self._queue.bury_many([self.hold], error, conn=conn))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.settled is not None:
            return
        if error is None:
            self.ack()
        elif isinstance(error, Exception):
            self.nack(described(error))
        else:
            self.release()


class AsyncDelivery(Handed[P]):
    """`Delivery` for async code."""

    __slots__ = ("_queue",)

    def __init__(self, queue: AsyncSettling, lease: Lease[P], asked_s: float) -> None:
        super().__init__(lease, asked_s)
        self._queue = queue

    @property
    def queue(self) -> str:
        return self._queue.name

    async def ack(self, *, conn: Any = None) -> Settled:
        with self._settling("ack", conn) as note:
            return note(await self._queue.ack_many([self.hold], conn=conn))

    async def nack(self, error: str | None = None, *, delay: timedelta | None = None, conn: Any = None) -> Settled:
        with self._settling("nack", conn) as note:
            return note(await self._queue.nack_many([Failure(self.hold, error, delay)], conn=conn))

    async def touch(self, lease_for: timedelta | None = None, *, conn: Any = None) -> Settled:
        return (await self._queue.touch_many([self.hold], lease_for, conn=conn))[0]

    async def release(self, *, at: datetime | None = None, after: timedelta | None = None, conn: Any = None) -> Settled:
        with self._settling("release", conn) as note:
            return note(await self._queue.release_many([self.hold], at=at, after=after, conn=conn))

    async def bury(self, error: str | None = None, *, conn: Any = None) -> Settled:
        with self._settling("bury", conn) as note:
            return note(await self._queue.bury_many([self.hold], error, conn=conn))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.settled is not None:
            return
        if error is None:
            await self.ack()
        elif isinstance(error, Exception):
            await self.nack(described(error))
        else:
            # The task is being cancelled: the release must not be cancelled with it.
            await asyncio.shield(self.release())
