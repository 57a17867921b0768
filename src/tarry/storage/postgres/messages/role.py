"""`MessagesRole` on PostgreSQL. Operations of several statements are in `operations`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import TypeVar

from tarry.core.clock import Clock
from tarry.core.limits import clip_error
from tarry.core.messages.edits import Edit
from tarry.core.messages.model import (
    DEFAULT_POLL,
    EVERYTHING,
    BuryReason,
    Decode,
    Draft,
    Failure,
    Filter,
    Lease,
    LeaseId,
    PollOptions,
    StoredMessage,
)
from tarry.core.messages.outcomes import Edited, Outcome, Settled
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State
from tarry.core.settings import StoreSettings
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import Cursor
from tarry.storage.postgres.messages.depth import DepthBudget
from tarry.storage.postgres.messages.statements import Failed, MissingQueue, SettledKeys
from tarry.storage.postgres.operation import GroupItem, PostgresOperation, PostgresRole, operation
from tarry.storage.postgres.statement import Op, Statement

P = TypeVar("P")
R = TypeVar("R")

SettledList = list[Settled]

_FIRST = itemgetter(0)


class PostgresMessages(PostgresRole):
    def __init__(
        self, clock: Clock, settings: StoreSettings, poll_timer: Callable[[], float], budget: DepthBudget
    ) -> None:
        super().__init__(clock, settings)
        self._poll_timer = poll_timer
        self._budget = budget
        self._cursors: dict[tuple[str, str | None], Cursor] = {}

    def offer(self, queue: str, draft: Draft) -> PostgresOperation[Outcome]:
        def batch(drafts: Sequence[Draft], again: bool) -> PostgresOperation[builtins.list[Outcome]]:  # noqa: FBT001
            start = self._offered(queue, drafts, list, again=again)
            return PostgresOperation(start, atomic=ops.takes_several_steps(drafts))

        start = self._offered(queue, [draft], _FIRST)
        return PostgresOperation(start, group_item=GroupItem("offer", queue, draft, draft.key, draft.key, batch))

    def offer_many(self, queue: str, drafts: Sequence[Draft]) -> PostgresOperation[builtins.list[Outcome]]:
        return PostgresOperation(self._offered(queue, drafts, list), atomic=ops.takes_several_steps(drafts))

    def _offered(
        self,
        queue: str,
        drafts: Sequence[Draft],
        result: Callable[[builtins.list[Outcome]], R],
        *,
        again: bool = False,
    ) -> Callable[[bool], Op[R]]:
        """Every retry must account for an earlier try that may have stored the messages."""
        tries = 1 if again else 0

        def start(own: bool) -> Op[R]:  # noqa: FBT001
            nonlocal tries
            tries += 1
            if tries == 1:
                return self._offered_first(queue, drafts, result, own)
            return self._creating(queue, own, lambda now: ops.offer_again(queue, drafts, now, self._budget), result)

        return start

    def _offered_first(
        self,
        queue: str,
        drafts: Sequence[Draft],
        result: Callable[[builtins.list[Outcome]], R],
        own: bool,  # noqa: FBT001
    ) -> Op[R]:
        budget = self._budget
        fits = queue in budget.queues and ops.fits(queue, drafts, budget)
        try:
            return result((yield from ops.offer_many(queue, drafts, self._now, fits=fits)))
        except MissingQueue:
            pass  # or the queue has a depth limit
        return (
            yield from self._creating(queue, own, lambda now: ops.offer_counted(queue, drafts, now, budget), result)
        )

    def poll(
        self, queue: str, n: int, decode: Decode[P], options: PollOptions = DEFAULT_POLL
    ) -> PostgresOperation[builtins.list[Lease[P]]]:
        def start(own: bool) -> Op[builtins.list[Lease[P]]]:  # noqa: FBT001
            # In the caller's transaction a lease is as durable as the rest of it. It may be rolled back, so the shared cursor
            # does not learn from it.
            cursor = self._cursors.get((queue, options.type)) if own else Cursor()
            if cursor is None:
                cursor = self._cursors.setdefault((queue, options.type), Cursor())
            return self._creating(
                queue,
                own,
                lambda now: ops.poll(queue, n, decode, options, cursor, self._poll_timer, now, durable=not own),
                list,
                by_poll=True,
            )

        return PostgresOperation(start)

    def ack(self, queue: str, lease_ids: Sequence[LeaseId]) -> PostgresOperation[SettledList]:
        def each(lease_ids: Sequence[LeaseId], again: bool) -> PostgresOperation[builtins.list[SettledList]]:  # noqa: FBT001
            def start(own: bool) -> Op[builtins.list[SettledList]]:  # noqa: FBT001
                settled = yield from self._settle("ack", queue, lease_ids, _ack).start(own)
                return [[outcome] for outcome in settled]

            return PostgresOperation(start)

        operation = self._settle("ack", queue, lease_ids, _ack)
        if len(lease_ids) == 1:
            operation.group_item = GroupItem("ack", queue, lease_ids[0], lease_ids[0].key, lease_ids[0], each)
        return operation

    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None
    ) -> PostgresOperation[SettledList]:
        failed = {f.lease_id: Failed(f.lease_id, _clipped(f.error), f.after, f.due_at) for f in reversed(failures)}
        return self._settle(
            "nack",
            queue,
            [failure.lease_id for failure in failures],
            lambda name, ids, now, again: statements.nack(name, [failed[lease_id] for lease_id in ids], now, retry),
        )

    def touch(
        self, queue: str, lease_ids: Sequence[LeaseId], *, lease_for: timedelta | None = None
    ) -> PostgresOperation[SettledList]:
        return self._settle(
            "touch", queue, lease_ids, lambda name, ids, now, again: statements.touch(name, ids, lease_for, now)
        )

    def release(
        self,
        queue: str,
        lease_ids: Sequence[LeaseId],
        *,
        due_at: datetime | None = None,
        after: timedelta | None = None,
    ) -> PostgresOperation[SettledList]:
        return self._settle(
            "release",
            queue,
            lease_ids,
            lambda name, ids, now, again: statements.release(name, ids, now, due_at=due_at, after=after),
        )

    def bury(
        self, queue: str, lease_ids: Sequence[LeaseId], *, error: str | None = None, reason: BuryReason = "buried"
    ) -> PostgresOperation[SettledList]:
        failed = partial(Failed, error=_clipped(error), reason=reason)
        return self._settle(
            "bury", queue, lease_ids, lambda name, ids, now, again: statements.nack(name, [*map(failed, ids)], now)
        )

    def _settle(
        self, verb: str, queue: str, lease_ids: Sequence[LeaseId], statement: ops.SettleStatement
    ) -> PostgresOperation[SettledList]:
        return PostgresOperation(
            lambda own: ops.settle(ops.Settlement(verb, queue, self._now, statement), lease_ids),
            atomic=len(lease_ids) > ops.CHUNK,
        )

    @operation()
    def bury_by_key(
        self, queue: str, key: str, *, error: str | None = None, version: int | None = None, force: bool = False
    ) -> Op[Edited]:
        return ops.bury_by_key(queue, key, error, version, self._now, force=force)

    @operation()
    def edit(self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False) -> Op[Edited]:
        return ops.edit(queue, key, edit, version, self._now, force=force)

    @operation()
    def drop(self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False) -> Op[bool]:
        return statements.drop(queue, key, version, self._now, unless_leased=unless_leased).run()

    @operation(atomic=True)
    def purge(self, queue: str) -> Op[int]:
        return statements.purge(queue, self._now).run()

    @operation()
    def read(self, queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
        return statements.read(queue, key, self._now).run()

    @operation()
    def contains(self, queue: str, key: str) -> Op[bool]:
        return (yield from statements.read(queue, key, self._now).run()) is not None

    @operation()
    def list(
        self, queue: str, *, state: State | None = None, limit: int = 100, filter: Filter = EVERYTHING
    ) -> Op[builtins.list[StoredMessage[bytes]]]:
        return statements.messages(queue, state, limit, filter, self._now).run()


def _ack(queue: str, lease_ids: Sequence[LeaseId], now: datetime | None, again: bool) -> Statement[SettledKeys]:  # noqa: FBT001
    return statements.ack(queue, lease_ids, now, by_key=again)


def _clipped(error: str | None) -> str | None:
    return None if error is None else clip_error(error)
