"""The PostgreSQL store for code that blocks. One expression per verb: what needs deciding is decided in `ops`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, errors
from psycopg_pool import ConnectionPool

from tarry.core.audit import Audited
from tarry.core.clock import AuthorityClock, Clock
from tarry.core.editing import Edit
from tarry.core.events import Event
from tarry.core.following import EventPage
from tarry.core.keys import ApiKey
from tarry.core.messages import (
    EVERYTHING,
    BuryReason,
    Counts,
    Decode,
    Draft,
    Failure,
    Filter,
    Hold,
    Lease,
    StoredMessage,
)
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.ports import Connections
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.states import State
from tarry.core.waiting import Lobby, Waited
from tarry.storage.postgres import ops
from tarry.storage.postgres.answering import Answering
from tarry.storage.postgres.arrays import teach
from tarry.storage.postgres.chores import Chores, ChoreVerbs
from tarry.storage.postgres.connections import configure, keeps_state, keywords, pool_now
from tarry.storage.postgres.drive import drive, transaction
from tarry.storage.postgres.faults import LOCK_PAUSE_S, is_transient, translated
from tarry.storage.postgres.fencing import Fence, Session
from tarry.storage.postgres.guests import commits_each_statement, guest_connection
from tarry.storage.postgres.home import Home
from tarry.storage.postgres.listen import Listening
from tarry.storage.postgres.lock_turns import LockWait, share
from tarry.storage.postgres.scheduling import Scheduling
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.statements import MissingQueue
from tarry.storage.postgres.verbs import Offering, Verbs
from tarry.storage.postgres.wait_statements import Sleeper

P = TypeVar("P")
R = TypeVar("R")


CLOSE_WITHIN_S = 2.0
"""`close` waits so long for the threads of the pool, which may be connecting. Other threads fail at their next statement."""


class PostgresStore(Chores, Scheduling, Answering):
    def __init__(self, dsn: str, *, clock: Clock | None = None, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self._home = Home()
        clock = clock or AuthorityClock()
        self._verbs = Verbs(clock, create=settings.create_queues)
        self._guest_verbs = Verbs(clock, create=False)
        self._lent = set()
        self._left_sessions: list[Session] = []
        self._lock_turns = threading.Semaphore(share(settings.pool_size))
        self.lobby = Lobby(
            scan_every=settings.scan_every,
            listening_scan_every=settings.listening_scan_every,
            monotonic=time.monotonic,
        )
        trusted = isinstance(clock, AuthorityClock)
        self._listening = Listening(settings.listen_dsn or dsn, self.lobby, trusted=trusted)
        self._pool = ConnectionPool[Connection[Any]](
            dsn,
            kwargs=keywords(dsn),
            min_size=0,
            max_size=settings.pool_size,
            configure=partial(configure, statement_for=settings.statement_for),
            timeout=settings.connect_for.total_seconds(),
            # Less than a caller waits: then its next try begins afresh, instead of waiting for a pause that has doubled
            # for as long as the server was away.
            reconnect_timeout=0.8 * settings.connect_for.total_seconds(),
            name="tarry",
            open=True,
        )

    def close(self) -> None:
        if not self._home.is_here:
            return
        self._listening.close()
        self._pool.close(timeout=CLOSE_WITHIN_S)
        self.lobby.ring_all()  # who still waits is told by the next statement

    def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome:
        return self._run(Offering(queue, [draft]), conn)[0]

    def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]:
        return self._run(Offering(queue, drafts), conn, atomic=ops.takes_several_steps(drafts))

    def offer_once(
        self, queue: str, draft: Draft, request: Once, show: Callable[[Outcome], Answered]
    ) -> Answered | None:
        return self.once(request, lambda conn: show(self.offer(queue, draft, conn=conn)))

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
        conn: Any = None,
    ) -> list[Lease[P]]:
        return self._run(
            lambda verbs: verbs.lease(
                queue,
                n,
                decode,
                type=type,
                lease_for=lease_for,
                consumer=consumer,
                max_attempts=max_attempts,
                lowest_first=lowest_first,
                own=conn is None,
            ),
            conn,
        )

    def wait(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Waited:
        listener = self._listening.started()
        probe = listener.probe()
        sleeper = Sleeper.of(self.settings, listener.who, sleep_for, probe)
        waited = self._run(lambda verbs: verbs.wait(queue, type, sleeper), None)
        listener.sent(probe)
        return waited

    def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]:
        return self._run(lambda verbs: verbs.ack(queue, holds), conn, atomic=len(holds) > ops.CHUNK)

    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]:
        return self._run(lambda verbs: verbs.nack(queue, failures, retry), conn, atomic=len(failures) > ops.CHUNK)

    def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]:
        return self._run(lambda verbs: verbs.touch(queue, holds, lease_for), conn, atomic=len(holds) > ops.CHUNK)

    def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        return self._run(lambda verbs: verbs.release(queue, holds, due_at, delay), conn, atomic=len(holds) > ops.CHUNK)

    def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]:
        return self._run(lambda verbs: verbs.bury(queue, holds, error, reason), conn, atomic=len(holds) > ops.CHUNK)

    def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None:
        return self._run(lambda verbs: verbs.read(queue, key), conn)

    def contains(self, queue: str, key: str, *, conn: Any = None) -> bool:
        return self._run(lambda verbs: verbs.contains(queue, key), conn)

    def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]:
        return self._run(lambda verbs: verbs.messages(queue, state, limit, filter), conn)

    def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None, conn: Any = None
    ) -> list[Event]:
        return self._run(lambda verbs: verbs.timeline(queue, key, limit, before, own=conn is None), conn, atomic=True)

    def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        return self._run(lambda verbs: verbs.counts(queue, limit), conn)

    def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False, conn: Any = None
    ) -> Edited:
        return self._run(lambda verbs: verbs.edit(queue, key, edit, version, force=force), conn)

    def give_up(
        self,
        queue: str,
        key: str,
        *,
        error: str | None = None,
        version: int | None = None,
        force: bool = False,
        conn: Any = None,
    ) -> Edited:
        return self._run(lambda verbs: verbs.give_up(queue, key, error, version, force=force), conn)

    def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool:
        return self._run(lambda verbs: verbs.drop(queue, key, version, unless_leased=unless_leased), conn)

    def drop_all(self, queue: str, *, conn: Any = None) -> int:
        return self._run(lambda verbs: verbs.drop_all(queue), conn, atomic=True)

    def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo:
        return self._run(lambda verbs: verbs.create_queue(name, settings, exist_ok=exist_ok), conn)

    def edit_queue(self, name: str, settings: QueueSettings, *, only: frozenset[str], conn: Any = None) -> QueueInfo:
        return self._run(lambda verbs: verbs.edit_queue(name, settings, only), conn)

    def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda verbs: verbs.rename_queue(name, new_name), conn)

    def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None:
        return self._run(lambda verbs: verbs.delete_queue(name, force=force), conn, atomic=True)

    def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda verbs: verbs.queue_info(name), conn)

    def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]:
        return self._run(Verbs.queue_infos, conn)

    def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        return self._run(lambda verbs: verbs.pause(name, paused=True, reason=reason), conn)

    def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._run(lambda verbs: verbs.pause(name, paused=False, reason=None), conn)

    def now(self, *, conn: Any = None) -> datetime:
        return self._run(Verbs.now, conn)

    def _do(
        self, make: Callable[[ChoreVerbs], Op[R]], conn: Any, *, atomic: bool = False, wait_for_locks: bool = True
    ) -> R:
        return self._run(make, conn, atomic=atomic, wait_for_locks=wait_for_locks)

    def add_key(self, key: ApiKey, *, expires_for: timedelta | None, conn: Any = None) -> ApiKey:
        return self._run(lambda verbs: verbs.add_key(key, expires_for), conn)

    def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]:
        return self._run(lambda verbs: verbs.find_keys(ids), conn)

    def keys(self, *, conn: Any = None) -> list[ApiKey]:
        return self._run(Verbs.keys, conn)

    def revoke_key(self, id: str, *, conn: Any = None) -> ApiKey | None:
        return self._run(lambda verbs: verbs.revoke_key(id), conn)

    def audit(
        self,
        actor: str,
        action: str,
        *,
        queue: str | None = None,
        detail: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        conn: Any = None,
    ) -> int:
        return self._run(lambda verbs: verbs.audit(actor, action, queue, detail, request_id), conn)

    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None, conn: Any = None) -> None:
        return self._run(lambda verbs: verbs.audited(id, status, detail), conn)

    def audits(self, *, limit: int = 100, conn: Any = None) -> list[Audited]:
        return self._run(lambda verbs: verbs.audits(limit), conn)

    def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage:
        return self._run(lambda verbs: verbs.follow(after, until, limit, most), None, atomic=True)

    def connections(self) -> Connections:
        return pool_now(self._pool.get_stats())

    def _run(
        self,
        make: Callable[[Verbs], Op[R]],
        conn: Connection[Any] | None,
        *,
        atomic: bool = False,
        wait_for_locks: bool = True,
    ) -> R:
        """A fresh op for every try, since a generator cannot be rewound. The caller's own transaction is tried once."""
        if conn is not None:
            return self._run_as_guest(make, conn, atomic=atomic)
        return self._retried(lambda own: self._driven(own, make, atomic=atomic), wait_for_locks=wait_for_locks)

    def _driven(self, own: Connection[Any], make: Callable[[Verbs], Op[R]], *, atomic: bool) -> R:
        if not atomic and keeps_state(own):
            return drive(own, make(self._verbs))
        with transaction(own, bounded=not keeps_state(own)):
            return drive(own, make(self._verbs))

    def _retried(self, work: Callable[[Connection[Any]], R], *, wait_for_locks: bool = True) -> R:
        """With a connection of ours, again and again while what went wrong passes by itself.

        `wait_for_locks`: locks of other transactions, too, for `lock_for`, without keeping a connection in between.
        """
        self._home.check()
        patience, failures, started = self.settings.patience, 0, time.monotonic()
        lock_wait = LockWait(self.settings.lock_for.total_seconds())
        fence = Fence(self._left_sessions)
        while True:
            tried_s, own = time.monotonic(), None
            try:
                with lock_wait.turn(self._lock_turns), self._pool.connection() as own:
                    drive(own, fence.close())
                    return work(own)
            except errors.LockNotAvailable as error:
                lock_wait.met(error, tried_s)
                if not wait_for_locks or lock_wait.is_over:
                    raise translated(error, 1) from error
                time.sleep(LOCK_PAUSE_S)
            except psycopg.Error as error:
                fence.lost(own)
                failures += 1
                pause = patience.pause(failures).total_seconds()
                spent = time.monotonic() - started + pause
                if not is_transient(error) or failures > patience.retries or spent > patience.total_for.total_seconds():
                    fence.give_up()
                    raise translated(error, failures) from error
                time.sleep(pause)
                self._pool.check()

    def _run_as_guest(self, make: Callable[[Verbs], Op[R]], conn: Connection[Any], *, atomic: bool) -> R:
        teach(guest_connection(conn, Connection).adapters)
        try:
            return self._driven_as_guest(conn, make, atomic=atomic)
        except MissingQueue as missing:
            if not self.settings.create_queues or conn in self._lent:
                raise
            name = missing.name
        # Not in the caller's transaction: there, the new name would keep everybody else waiting until it ends.
        self.create_queue(name, QueueSettings(), exist_ok=True)
        return self._driven_as_guest(conn, make, atomic=atomic)

    def _driven_as_guest(self, conn: Connection[Any], make: Callable[[Verbs], Op[R]], *, atomic: bool) -> R:
        notify = self.settings.notify_with_conn or conn in self._lent
        with conn.transaction() if atomic and commits_each_statement(conn) else nullcontext():
            return drive(conn, make(self._guest_verbs), guest=True, notify=notify)
