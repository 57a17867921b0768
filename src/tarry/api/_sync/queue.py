# Generated from src/tarry/api/queue.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.queue`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack

from tarry.api._sync.dead_letters import DeadLetters
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.leases import Leases
from tarry.api._sync.waiting import wait_for
from tarry.api.decoding import decoded
from tarry.api.drafts import Changes, Drafter, checked_conflict, checked_edit
from tarry.api.prefetch import Prefetched
from tarry.core import limits
from tarry.core._sync.ports import Store
from tarry.core.codecs import Codec
from tarry.core.messages.model import Conflict, Lease, Message, PollArguments, PollOptions, StoredMessage
from tarry.core.messages.outcomes import Edited, Outcome
from tarry.core.messages.retry import Retry
from tarry.core.monotonic import elapsed_s
from tarry.core.operation import Operation
from tarry.core.wakeup.wait_queue import WaitKey

P = TypeVar("P")


class Queue(Generic[P]):
    """Messages of one queue: offer, poll, read, edit. `leases` settles many in one call; for the settings see `app.queues`.

    Concurrent tasks of one event loop share a commit for their offers and acks."""

    def __init__(
        self,
        store: Store,
        name: str,
        codec: Codec[P],
        *,
        consumer: str | None = None,
        timer: Callable[[], float] = elapsed_s,
    ) -> None:
        self.name = limits.check_queue_name(name)
        self.leases = Leases(store, self.name)
        self._store = store
        self._messages = store.messages
        self._codec = codec
        self._timer = timer
        self._consumer = limits.check_consumer(consumer)
        self._poll_options = PollOptions(consumer=self._consumer)
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
        message = Message(
            payload=payload,
            key=key,
            at=at,
            after=after,
            priority=priority,
            type=type,
            headers=headers,
            lease_for=lease_for,
            max_attempts=max_attempts,
            retry=retry,
            conflict=checked_conflict(conflict, can_update=can_update),
        )
        return self._store.run(self._messages.offer(self.name, self._drafter.draft_message(message)), conn)

    def offer_many(self, messages: Iterable[Message[P]], *, conn: Any = None) -> list[Outcome]:
        """Offer all messages or none. Returns one outcome per message, in the given order."""
        return self._store.run(self._messages.offer_many(self.name, self._drafter.draft_messages(messages)), conn)

    def try_poll(self, *, conn: Any = None, **options: Unpack[PollArguments]) -> Delivery[P] | None:
        return next(iter(self.try_poll_many(1, conn=conn, **options)), None)

    def try_poll_many(self, n: int, *, conn: Any = None, **options: Unpack[PollArguments]) -> list[Delivery[P]]:
        """Lease at most `n` messages that are deliverable now, in order of priority, due time and version."""
        chosen = PollOptions(consumer=self._consumer, **options) if options else self._poll_options
        return self._leased(self._messages.poll(self.name, limits.check_count(n), self._codec.decode, chosen), conn)

    def _leased(self, poll: Operation[list[Lease[P]]], conn: Any) -> list[Delivery[P]]:
        polled_s = self._timer()
        leases = self._store.run(poll, conn)
        return [Delivery(self, lease, polled_s) for lease in leases]

    def poll(self, timeout: timedelta | None = None, **options: Unpack[PollArguments]) -> Delivery[P] | None:
        """Wait for a message. None if `timeout` passes without one; without a timeout it waits forever."""
        return next(iter(self.poll_many(1, timeout, **options)), None)

    def poll_many(
        self, n: int, timeout: timedelta | None = None, **options: Unpack[PollArguments]
    ) -> list[Delivery[P]]:
        """Wait until at least one message is deliverable, then lease at most `n`."""
        timeout = limits.check_timeout(timeout)
        if limits.check_count(n) <= 0:
            return []
        chosen = PollOptions(consumer=self._consumer, **options) if options else self._poll_options
        return wait_for(
            self._store.wakeup.wait_queue,
            WaitKey(self.name, chosen.type),
            timeout,
            poll=lambda: self._leased(self._messages.poll(self.name, n, self._codec.decode, chosen), None),
            announce=lambda sleep_for: self._store.run(
                self._store.wakeup.announce(self.name, sleep_for=sleep_for, type=chosen.type)
            ),
        )

    def consume(self, *, prefetch: int | None = None, **options: Unpack[PollArguments]) -> Iterator[Delivery[P]]:
        """Yield deliveries forever, leased `prefetch` at a time; by default as many as the loop handles in 50 ms, at most
        50. Prefetched messages that were not yielded are released when the loop exits."""
        size = None if prefetch is None else limits.check_count(prefetch, "prefetch")
        held: Prefetched[Delivery[P]] = Prefetched(size)
        try:
            while True:
                deliveries = self.poll_many(held.size, **options)
                # Not the start of the wait, which may be long ago.
                held.fill(deliveries, deliveries[0].polled_s, self._timer())
                while (delivery := held.take(self._timer())) is not None:
                    yield delivery
                    if held.should_look(self._timer()) and self._is_paused():
                        break
                self._release(held.rest())
        finally:
            # Also when the task is being cancelled: the release must not be cancelled with it.
            self._release(held.rest())

    def _is_paused(self) -> bool:
        return self._store.run(self._store.queues.info(self.name)).paused

    def _release(self, unstarted: Sequence[Delivery[P]]) -> None:
        if unstarted:
            self.leases.release([delivery.lease_id for delivery in unstarted])

    def read(self, key: str, *, conn: Any = None) -> StoredMessage[P] | None:
        """The live message of this key, without a lease."""
        return decoded(self._store.run(self._messages.read(self.name, limits.check_key(key)), conn), self._codec)

    def contains(self, key: str, *, conn: Any = None) -> bool:
        return self._store.run(self._messages.contains(self.name, limits.check_key(key)), conn)

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

        Attempts keep counting. A leased message is not changed unless `force` is set, which voids its lease. With a
        `version`, the edit applies only if the message still has that version."""
        seen = None if version is None else limits.check_count(version, "version")
        edit = checked_edit(changes, self._codec, self._store.settings.payload_limit)
        return self._store.run(
            self._messages.edit(self.name, limits.check_key(key), edit, version=seen, force=force), conn
        )

    def drop(self, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None) -> bool:
        """Remove a live message, leased or not. With a `version`: only if the message still has that version."""
        seen = None if version is None else limits.check_count(version, "version")
        return self._store.run(
            self._messages.drop(self.name, limits.check_key(key), version=seen, unless_leased=unless_leased), conn
        )

    def purge(self, confirm: str, *, conn: Any = None) -> int:
        """Remove every live message of this queue. `confirm` must be `tarry.core.limits.PURGE_CONFIRMATION`."""
        limits.check_confirmation(confirm)
        return self._store.run(self._messages.purge(self.name), conn)
