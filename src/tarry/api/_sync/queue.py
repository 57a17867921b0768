"""A blocking queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack

from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.messages import BuryReason, Conflict, Failure, Hold, Message, StoredMessage
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.ports import Store
from tarry.core.retry import Retry, check_retry
from tarry.core.waiting import LineKey
from tarry.handles.dead_letters import DeadLetters
from tarry.handles.delivery import Delivery
from tarry.handles.drafting import Drafter, checked_due
from tarry.handles.editing import Changes, checked_edit
from tarry.handles.elapsed import elapsed_s
from tarry.handles.holds import checked_failures, checked_holds
from tarry.handles.prefetching import Prefetched
from tarry.handles.reading import decoded
from tarry.handles.texts import checked_text
from tarry.handles.waiting import wait_for

P = TypeVar("P")


class Queue(Generic[P]):
    """Messages of one queue: offer, poll, settle, read. For its settings see `app.queues`."""

    def __init__(self, store: Store, name: str, codec: Codec[P], *, consumer: str | None = None) -> None:
        self.name = limits.check_queue_name(name)
        self._store = store
        self._codec = codec
        self._consumer = limits.check_consumer(consumer)
        self._drafter = Drafter(codec, store.settings.payload_limit)

    @property
    def dead_letters(self) -> DeadLetters[P]:
        return DeadLetters(self._store, self.name, self._codec, self._consumer)

    def offer(
        self,
        key: str | None,
        payload: P,
        *,
        at: datetime | None = None,
        after: timedelta | None = None,
        priority: int = 0,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
        lease_for: timedelta | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        conflict: Conflict | None = None,
        can_update: bool = True,
        conn: Any = None,
    ) -> Outcome:
        """Store a message until it is due: now, `at` an instant, or `after` a while. `key=None` generates a key."""
        draft = self._drafter.draft(
            key,
            payload,
            at=at,
            after=after,
            priority=priority,
            type=type,
            headers=headers,
            lease_for=lease_for,
            max_attempts=max_attempts,
            retry=retry,
            conflict=conflict,
            can_update=can_update,
        )
        return self._store.offer(self.name, draft, conn=conn)

    def offer_many(self, messages: Iterable[Message[P]], *, conn: Any = None) -> list[Outcome]:
        """All or nothing, with one outcome per message in the given order."""
        return self._store.offer_many(self.name, [self._drafter.draft_message(m) for m in messages], conn=conn)

    def try_poll(
        self, *, type: str | None = None, lease_for: timedelta | None = None, conn: Any = None
    ) -> Delivery[P] | None:
        return next(iter(self.try_poll_many(1, type=type, lease_for=lease_for, conn=conn)), None)

    def try_poll_many(
        self,
        n: int,
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
        conn: Any = None,
    ) -> list[Delivery[P]]:
        """Lease at most `n` messages that are deliverable now, by priority, due time and version.

        `max_attempts` overrides the queue's, but not a message's own. `lowest_first` starts with the lowest priority.
        """
        asked_s = elapsed_s()
        leases = self._store.lease(
            self.name,
            limits.check_count(n),
            self._codec.decode,
            type=limits.check_type(type),
            lease_for=None if lease_for is None else limits.check_lease_for(lease_for),
            consumer=self._consumer,
            max_attempts=limits.check_max_attempts(max_attempts),
            lowest_first=lowest_first,
            conn=conn,
        )
        return [Delivery(self, lease, asked_s) for lease in leases]

    def poll(
        self, timeout: timedelta | None = None, *, type: str | None = None, lease_for: timedelta | None = None
    ) -> Delivery[P] | None:
        """Wait for a message. None if `timeout` passes without one; without a timeout it waits forever."""
        return next(iter(self.poll_many(1, timeout, type=type, lease_for=lease_for)), None)

    def poll_many(
        self,
        n: int,
        timeout: timedelta | None = None,
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
    ) -> list[Delivery[P]]:
        """Wait for at least one message, and lease what is deliverable, at most `n`."""
        timeout = limits.check_timeout(timeout)
        if limits.check_count(n) <= 0:
            return []
        return wait_for(
            self._store.lobby,
            LineKey(self.name, limits.check_type(type)),
            timeout,
            look=lambda: self.try_poll_many(
                n, type=type, lease_for=lease_for, max_attempts=max_attempts, lowest_first=lowest_first
            ),
            ask=lambda sleep_for: self._store.wait(self.name, sleep_for=sleep_for, type=type),
        )

    def consume(
        self, *, prefetch: int = 1, type: str | None = None, lease_for: timedelta | None = None
    ) -> Iterator[Delivery[P]]:
        """Yield deliveries forever, leased `prefetch` at a time. Unyielded ones are released when the loop ends."""
        held: Prefetched[Delivery[P]] = Prefetched(limits.check_count(prefetch, "prefetch"))
        try:
            while True:
                found = self.poll_many(held.size, type=type, lease_for=lease_for)
                held.fill(found, found[0].asked_s)  # not the start of the wait, which may be long ago
                while (delivery := held.take(elapsed_s())) is not None:
                    yield delivery
                    if held.should_look(elapsed_s()) and self._store.queue_info(self.name).paused:
                        break
                self._release(held.rest())
        finally:
            self._release(held.rest())

    def _release(self, unstarted: Sequence[Delivery[P]]) -> None:
        if unstarted:
            self.release_many([delivery.hold for delivery in unstarted])

    def ack_many(self, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]:
        return self._store.ack(self.name, checked_holds(holds), conn=conn)

    def nack_many(self, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None) -> list[Settled]:
        """`retry` overrides the queue's policy and number of attempts, but not a message's own."""
        return self._store.nack(self.name, checked_failures(failures), retry=check_retry(retry), conn=conn)

    def touch_many(
        self, holds: Sequence[Hold], lease_for: timedelta | None = None, *, conn: Any = None
    ) -> list[Settled]:
        checked = None if lease_for is None else limits.check_lease_for(lease_for)
        return self._store.touch(self.name, checked_holds(holds), lease_for=checked, conn=conn)

    def release_many(
        self,
        holds: Sequence[Hold],
        *,
        at: datetime | None = None,
        after: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        """Release without counting the attempt: ready at once, or due `at` an instant or `after` a while."""
        due_at, delay = checked_due(at, after)
        return self._store.release(self.name, checked_holds(holds), due_at=due_at, delay=delay, conn=conn)

    def bury_many(
        self, holds: Sequence[Hold], error: str | None = None, *, reason: BuryReason = "buried", conn: Any = None
    ) -> list[Settled]:
        text = checked_text(error, "error")
        return self._store.bury(self.name, checked_holds(holds), error=text, reason=reason, conn=conn)

    def read(self, key: str, *, conn: Any = None) -> StoredMessage[P] | None:
        """The live message of this key, without a lease."""
        return decoded(self._store.read(self.name, limits.check_key(key), conn=conn), self._codec)

    def contains(self, key: str, *, conn: Any = None) -> bool:
        return self._store.contains(self.name, limits.check_key(key), conn=conn)

    def edit(
        self,
        key: str,
        *,
        version: int | None = None,
        force: bool = False,
        conn: Any = None,
        **changes: Unpack[Changes[P]],
    ) -> Edited:
        """Change the named fields of a live message, as in `edit("order-17", priority=9, after=timedelta(minutes=5))`.

        Attempts keep counting. A leased message is not changed unless `force` is set, which voids its lease. With the
        `version` that was read: only if it has not changed since.
        """
        seen = None if version is None else limits.check_count(version, "version")
        edit = checked_edit(changes, self._codec, self._store.settings.payload_limit)
        return self._store.edit(self.name, limits.check_key(key), edit, version=seen, force=force, conn=conn)

    def drop(self, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None) -> bool:
        """Remove a live message, leased or not. With the `version` that was read: only if it has not changed since."""
        seen = None if version is None else limits.check_count(version, "version")
        return self._store.drop(self.name, limits.check_key(key), version=seen, unless_leased=unless_leased, conn=conn)

    def drop_all(self, confirm: str, *, conn: Any = None) -> int:
        """Remove every live message of this queue. `confirm` must be `tarry.core.limits.DROP_ALL_CONFIRMATION`."""
        limits.check_confirmation(confirm)
        return self._store.drop_all(self.name, conn=conn)
