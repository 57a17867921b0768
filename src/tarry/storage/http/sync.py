"""A broker as a store for code that blocks. One expression per verb: what needs deciding is decided in `ops`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx
import msgspec

from tarry.core.errors import InvalidInput
from tarry.core.events import Event
from tarry.core.messages import (
    EVERYTHING,
    BuryReason,
    Counts,
    DeadLetter,
    Decode,
    Draft,
    Failure,
    Filter,
    Hold,
    Lease,
    StoredMessage,
)
from tarry.core.outcomes import Outcome, Settled
from tarry.core.redriving import EVERY_LETTER, DeadFilter
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.states import State
from tarry.storage.http import ops, writing
from tarry.storage.http.call import Answer, Call, Op, is_passing
from tarry.storage.http.transport import headers, refuse_conn, timeouts, unreachable

P = TypeVar("P")
R = TypeVar("R")


class HttpStore:
    def __init__(self, url: str, key: str | None = None, *, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self._client = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers(key),
            limits=httpx.Limits(max_connections=settings.pool_size, max_keepalive_connections=settings.pool_size),
            trust_env=False,
        )

    def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome:
        return self._in(queue, lambda: ops.offer(queue, draft), conn)

    def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]:
        return self._in(queue, lambda: ops.offer_many(queue, drafts), conn)

    def lease(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        consumer: str | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
        wait_for: timedelta = timedelta(0),
        conn: Any = None,
    ) -> list[Lease[P]]:
        """`wait_for`: the broker waits for a first message, at most a minute."""
        return self._in(
            queue,
            lambda: ops.lease(
                queue,
                n,
                decode,
                type=type,
                lease_for=lease_for,
                consumer=consumer,
                max_attempts=max_attempts,
                lowest_first=lowest_first,
                wait_for=wait_for,
            ),
            conn,
        )

    def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]:
        return self._in(queue, lambda: ops.settle(queue, "ack", holds), conn)

    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]:
        return self._in(queue, lambda: ops.nack(queue, failures, retry), conn)

    def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]:
        extend = writing.seconds(lease_for)
        return self._in(queue, lambda: ops.settle(queue, "touch", holds, extend_seconds=extend), conn)

    def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        return self._in(queue, lambda: ops.release(queue, holds, due_at, delay), conn)

    def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]:
        return self._in(queue, lambda: ops.settle(queue, "bury", holds, error=error, reason=reason), conn)

    def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None:
        return self._in(queue, lambda: ops.read(queue, key), conn)

    def contains(self, queue: str, key: str, *, conn: Any = None) -> bool:
        return (self.read(queue, key, conn=conn)) is not None

    def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]:
        return self._in(queue, lambda: ops.messages(queue, state, limit, filter), conn)

    def timeline(self, queue: str, key: str, *, limit: int = 1000, conn: Any = None) -> list[Event]:
        return self._in(queue, lambda: ops.timeline(queue, key, limit), conn)

    def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        return self._in(queue, lambda: ops.counts(queue, limit), conn)

    def drop(self, queue: str, key: str, *, version: int | None = None, conn: Any = None) -> bool:
        return self._in(queue, lambda: ops.drop(queue, key, version), conn)

    def drop_all(self, queue: str, *, conn: Any = None) -> int:
        return self._in(queue, lambda: ops.drop_all(queue), conn)

    def dead_letters(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, conn: Any = None
    ) -> list[DeadLetter[bytes]]:
        return self._in(queue, lambda: ops.dead_letters(queue, where, limit), conn)

    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None) -> int:
        return self._in(queue, lambda: ops.redrive(queue, versions, limit), conn)

    def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int:
        return self._in(queue, lambda: ops.purge_dead(queue, where), conn)

    def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo:
        return self._run(lambda: ops.create_queue(name, settings, exist_ok=exist_ok), conn)

    def edit_queue(self, name: str, settings: QueueSettings, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda: ops.edit_queue(name, settings), conn)

    def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda: ops.rename_queue(name, new_name), conn)

    def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None:
        return self._run(lambda: ops.delete_queue(name, force=force), conn)

    def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda: ops.queue_info(name), conn)

    def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]:
        return self._run(ops.queue_infos, conn)

    def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        return self._run(lambda: ops.pause(name, reason), conn)

    def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda: ops.resume(name), conn)

    def now(self, *, conn: Any = None) -> datetime:
        return self._run(ops.now, conn)

    def close(self) -> None:
        self._client.close()

    def _in(self, queue: str, make: Callable[[], Op[R]], conn: Any) -> R:
        return self._run(lambda: ops.in_queue(queue, make, create=self.settings.create_queues), conn)

    def _run(self, make: Callable[[], Op[R]], conn: Any) -> R:
        refuse_conn(conn)
        op = make()
        try:
            call = next(op)
            while True:
                call = op.send(self._answered(call))
        except StopIteration as stop:
            return stop.value

    def _answered(self, call: Call) -> Answer:
        """Every request may be sent twice (docs/decisions): what may have been lost on the way is asked for again."""
        patience, tries, started = self.settings.patience, 0, time.monotonic()
        content = None if call.body is None else msgspec.json.encode(call.body)
        while True:
            tries += 1
            pause = patience.pause(tries).total_seconds()
            spent = time.monotonic() - started + pause
            last = tries > patience.retries or spent > patience.total_for.total_seconds() + call.wait_s
            try:
                found = self._client.request(
                    call.method,
                    call.path,
                    content=content,
                    params=call.params,
                    headers={"content-type": "application/json"},
                    timeout=timeouts(self.settings, call),
                )
                if last or not is_passing(found.status_code):
                    return Answer(found.status_code, found.content, tries)
            except httpx.TransportError as error:
                if last:
                    raise unreachable(error, tries) from error
            except (httpx.InvalidURL, UnicodeError) as error:
                raise InvalidInput(f"this is not the address of a broker: {error}") from error
            time.sleep(pause)
