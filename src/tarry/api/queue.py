"""A queue: offer, poll, read, edit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack

from tarry.api.dead_letters import AsyncDeadLetters
from tarry.api.decoding import decoded
from tarry.api.delivery import AsyncDelivery
from tarry.api.drafts import Changes, Drafter, checked_conflict, checked_edit
from tarry.api.leases import AsyncLeases
from tarry.api.prefetch import Prefetched
from tarry.api.waiting import wait_for
from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.messages.model import Conflict, Lease, Message, PollArguments, PollOptions, StoredMessage
from tarry.core.messages.outcomes import Edited, Outcome
from tarry.core.messages.retry import Retry
from tarry.core.monotonic import elapsed_s
from tarry.core.operation import Operation
from tarry.core.ports import AsyncStore
from tarry.core.wakeup.wait_queue import WaitKey

P = TypeVar("P")

_RELEASE_S = 5.0
"""How long a cancelled poll waits for a response in flight, to release the messages in it."""


class AsyncQueue(Generic[P]):
    """Messages of one queue: offer, poll, read, edit. `leases` settles many in one call; for the settings see `app.queues`.

    Concurrent tasks of one event loop share a commit for their offers and acks."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        codec: Codec[P],
        *,
        consumer: str | None = None,
        timer: Callable[[], float] = elapsed_s,
    ) -> None:
        self.name = limits.check_queue_name(name)
        self.leases = AsyncLeases(store, self.name)
        self._store = store
        self._messages = store.messages
        self._codec = codec
        self._timer = timer
        self._consumer = limits.check_consumer(consumer)
        self._poll_options = PollOptions(consumer=self._consumer)
        self._drafter = Drafter(codec, store.settings.payload_limit)

    @property
    def dead_letters(self) -> AsyncDeadLetters[P]:
        return AsyncDeadLetters(self._store, self.name, self._codec, self._consumer)

    async def offer(
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
        return await self._store.run(self._messages.offer(self.name, self._drafter.draft_message(message)), conn)

    async def offer_many(self, messages: Iterable[Message[P]], *, conn: Any = None) -> list[Outcome]:
        """Offer all messages or none. Returns one outcome per message, in the given order."""
        return await self._store.run(self._messages.offer_many(self.name, self._drafter.draft_messages(messages)), conn)

    async def try_poll(self, *, conn: Any = None, **options: Unpack[PollArguments]) -> AsyncDelivery[P] | None:
        return next(iter(await self.try_poll_many(1, conn=conn, **options)), None)

    async def try_poll_many(
        self, n: int, *, conn: Any = None, **options: Unpack[PollArguments]
    ) -> list[AsyncDelivery[P]]:
        """Lease at most `n` messages that are deliverable now, in order of priority, due time and version."""
        chosen = PollOptions(consumer=self._consumer, **options) if options else self._poll_options
        return await self._leased(
            self._messages.poll(self.name, limits.check_count(n), self._codec.decode, chosen), conn
        )

    async def _leased(self, poll: Operation[list[Lease[P]]], conn: Any) -> list[AsyncDelivery[P]]:
        polled_s = self._timer()
        if True:  # ASYNC
            running = self._store.run(poll, conn)
            leases = await (running if conn is not None else self._unless_cancelled(running))
        else:
            leases = self._store.run(poll, conn)
        return [AsyncDelivery(self, lease, polled_s) for lease in leases]

    async def _unless_cancelled(  # ASYNC
        self, running: Coroutine[Any, Any, list[Lease[P]]]
    ) -> list[Lease[P]]:
        """Await a poll. If it is cancelled while the store returns messages, release them: the caller will not see
        them."""
        task = asyncio.ensure_future(running)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            releasing = asyncio.ensure_future(self._release_result(task))
            await asyncio.wait([releasing], timeout=_RELEASE_S)
            releasing.cancel()
            raise

    async def _release_result(self, task: asyncio.Task[list[Lease[P]]]) -> None:  # ASYNC
        with suppress(Exception):  # otherwise they are redelivered after their leases expire
            if lease_ids := [lease.lease_id for lease in await task]:
                await self.leases.release(lease_ids)

    async def poll(self, timeout: timedelta | None = None, **options: Unpack[PollArguments]) -> AsyncDelivery[P] | None:
        """Wait for a message. None if `timeout` passes without one; without a timeout it waits forever."""
        return next(iter(await self.poll_many(1, timeout, **options)), None)

    async def poll_many(
        self, n: int, timeout: timedelta | None = None, **options: Unpack[PollArguments]
    ) -> list[AsyncDelivery[P]]:
        """Wait until at least one message is deliverable, then lease at most `n`."""
        timeout = limits.check_timeout(timeout)
        if limits.check_count(n) <= 0:
            return []
        chosen = PollOptions(consumer=self._consumer, **options) if options else self._poll_options
        return await wait_for(
            self._store.wakeup.wait_queue,
            WaitKey(self.name, chosen.type),
            timeout,
            poll=lambda: self._leased(self._messages.poll(self.name, n, self._codec.decode, chosen), None),
            announce=lambda sleep_for: self._store.run(
                self._store.wakeup.announce(self.name, sleep_for=sleep_for, type=chosen.type)
            ),
        )

    async def consume(
        self, *, prefetch: int | None = None, **options: Unpack[PollArguments]
    ) -> AsyncIterator[AsyncDelivery[P]]:
        """Yield deliveries forever, leased `prefetch` at a time; by default as many as the loop handles in 50 ms, at most
        50. Prefetched messages that were not yielded are released when the loop exits."""
        size = None if prefetch is None else limits.check_count(prefetch, "prefetch")
        held: Prefetched[AsyncDelivery[P]] = Prefetched(size)
        try:
            while True:
                deliveries = await self.poll_many(held.size, **options)
                # Not the start of the wait, which may be long ago.
                held.fill(deliveries, deliveries[0].polled_s, self._timer())
                while (delivery := held.take(self._timer())) is not None:
                    yield delivery
                    if held.should_look(self._timer()) and await self._is_paused():
                        break
                await self._release(held.rest())
        finally:
            # Also when the task is being cancelled: the release must not be cancelled with it.
            await asyncio.shield(self._release(held.rest()))

    async def _is_paused(self) -> bool:
        return (await self._store.run(self._store.queues.info(self.name))).paused

    async def _release(self, unstarted: Sequence[AsyncDelivery[P]]) -> None:
        if unstarted:
            await self.leases.release([delivery.lease_id for delivery in unstarted])

    async def read(self, key: str, *, conn: Any = None) -> StoredMessage[P] | None:
        """The live message of this key, without a lease."""
        return decoded(await self._store.run(self._messages.read(self.name, limits.check_key(key)), conn), self._codec)

    async def contains(self, key: str, *, conn: Any = None) -> bool:
        return await self._store.run(self._messages.contains(self.name, limits.check_key(key)), conn)

    async def edit(
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
        return await self._store.run(
            self._messages.edit(self.name, limits.check_key(key), edit, version=seen, force=force), conn
        )

    async def drop(
        self, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool:
        """Remove a live message, leased or not. With a `version`: only if the message still has that version."""
        seen = None if version is None else limits.check_count(version, "version")
        return await self._store.run(
            self._messages.drop(self.name, limits.check_key(key), version=seen, unless_leased=unless_leased), conn
        )

    async def purge(self, confirm: str, *, conn: Any = None) -> int:
        """Remove every live message of this queue. `confirm` must be `tarry.core.limits.PURGE_CONFIRMATION`."""
        limits.check_confirmation(confirm)
        return await self._store.run(self._messages.purge(self.name), conn)
