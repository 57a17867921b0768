"""PostgreSQL operations, which the roles create for the blocking and the awaiting store alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, LiteralString, ParamSpec, TypeVar

import msgspec

from tarry.core.clock import Clock
from tarry.core.errors import UnknownQueue
from tarry.core.limits import check_queue_name
from tarry.core.maintenance.leadership import Leadership
from tarry.core.missing_queues import warn_of_polled
from tarry.core.operation import Operation
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.messages.statements import MissingQueue
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Op, Row, Statement, sql

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
Role = TypeVar("Role", bound="PostgresRole")


class PostgresOperation(msgspec.Struct, Operation[R_co], eq=False, gc=False):
    """An operation on the PostgreSQL store. A msgspec struct, because a group commit creates one per message."""

    start: Callable[[bool], Op[R_co]]
    """Creates a new generator for each try. The argument is false on the caller's connection, where no queue is created and
    the result may be rolled back."""
    atomic: bool = False
    """Consists of several statements that commit together."""
    wait_for_locks: bool = True
    """Retry while another transaction holds a lock that the operation needs."""
    group_item: GroupItem[R_co] | None = None
    """The group commit item that the awaiting store submits instead, on its own connections."""
    on_success: Callable[[], None] | None = None
    """Called after the commit."""
    then: PostgresOperation[int] | None = None
    """Run after the commit until it returns 0, each time in a separate transaction. Not on the caller's connection."""


class GroupItem(msgspec.Struct, Generic[R_co], eq=False, gc=False):
    """A group commit item. Items of many tasks with the same verb and queue become one operation."""

    verb: str
    queue: str
    value: Any
    key: str
    """Key of the message that the item locks."""
    identity: Hashable
    """Two items with the same identity never share a commit."""
    batch: Callable[[Sequence[Any], bool], PostgresOperation[Sequence[R_co]]]
    """The operation for the values of many items. The flag is true if an earlier try failed and may have stored them."""


class PostgresRole:
    def __init__(self, clock: Clock, settings: StoreSettings) -> None:
        self._clock = clock
        self._settings = settings

    @property
    def _now(self) -> datetime | None:
        """The time of a pinned clock; None: the database's clock decides."""
        return self._clock.pinned()

    def _statement(self, make: Callable[[datetime | None], Statement[R]]) -> PostgresOperation[R]:
        """A single statement, given the time of a pinned clock."""
        return PostgresOperation(lambda own: make(self._now).run())

    def _sql(self, file: LiteralString, decode: Callable[[list[Row]], R], /, **params: Any) -> PostgresOperation[R]:
        """The statement of a SQL file, with the time of a pinned clock as its parameter `now`."""
        return self._statement(lambda now: Statement(sql(file), {"now": now, **params}, decode))

    def _creating(
        self,
        queue: str,
        own: bool,  # noqa: FBT001
        make: Callable[[datetime | None], Op[S]],
        result: Callable[[S], R],
        *,
        by_poll: bool = False,
    ) -> Op[R]:
        """Run an offer or a poll, and create its queue if it is missing and the settings allow it."""
        now = self._now
        try:
            return result((yield from make(now)))
        except MissingQueue:
            if not own or not self._settings.create_queues:
                raise
        created = yield from queue_statements.create(check_queue_name(queue), QueueSettings(), now).run()
        if by_poll and created is not None:
            warn_of_polled(queue)
        return result((yield from make(now)))


def operation(
    *, atomic: bool = False, wait_for_locks: bool = True
) -> Callable[[Callable[Concatenate[Role, P], Op[R]]], Callable[Concatenate[Role, P], PostgresOperation[R]]]:
    """Decorate a role method that yields statements and creates no queue. It is called again for every try."""

    def decorate(
        make: Callable[Concatenate[Role, P], Op[R]],
    ) -> Callable[Concatenate[Role, P], PostgresOperation[R]]:
        @wraps(make)
        def method(self: Role, /, *args: P.args, **options: P.kwargs) -> PostgresOperation[R]:
            return PostgresOperation(
                lambda own: in_known_queue(lambda: make(self, *args, **options)), atomic, wait_for_locks
            )

        return method

    return decorate


def in_known_queue(make: Callable[[], Op[R]]) -> Op[R]:
    """Run an op that never creates its queue, not even for the caller's connection (see `MissingQueue`)."""
    try:
        return (yield from make())
    except MissingQueue as missing:
        raise UnknownQueue(missing.name) from None


def fenced(leadership: Leadership | None) -> dict[str, Any]:
    """Parameters of the fencing check, which is skipped without a leader."""
    return {"leader": leadership and leadership.name, "fence": leadership and leadership.fence}
