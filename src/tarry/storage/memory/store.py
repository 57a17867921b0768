"""The in-memory stores: the same guarantees as PostgreSQL's, until the process ends.

Each role has its own module; `state` has the lock, the clock and the queues that they share.
"""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from tarry.core.clock import AuthorityClock, Clock
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event
from tarry.core.operation import Operation, foreign
from tarry.core.ports import NO_CONNECTIONS, Connections
from tarry.core.security.idempotency import AsyncIdempotentCall, IdempotencyKey, IdempotentCall, StoredResponse
from tarry.core.settings import StoreSettings
from tarry.delayqueue.strategies import Strategy
from tarry.storage.memory.cron import MemoryCron
from tarry.storage.memory.dead_letters import MemoryDeadLetters
from tarry.storage.memory.journal import MemoryAnalytics, MemoryJournal
from tarry.storage.memory.maintenance import MemoryMaintenance
from tarry.storage.memory.messages import MemoryMessages, MemoryWakeup
from tarry.storage.memory.queues import MemoryQueues
from tarry.storage.memory.rollups import MemoryRollups
from tarry.storage.memory.search import MemorySearch
from tarry.storage.memory.security import MemorySecurity
from tarry.storage.memory.state import MemoryOperation, MemoryState
from tarry.storage.memory.workers import MemoryWorkers

R = TypeVar("R")

_AUTHORITY: Clock = AuthorityClock()
_DEFAULTS = StoreSettings()
_EVENTS_KEPT = 100_000


class MemoryRoles:
    """The roles on one state, which a blocking and an async store share."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state
        self.settings = state.settings
        self.messages = MemoryMessages(state)
        self.wakeup = MemoryWakeup(state)
        self.dead_letters = MemoryDeadLetters(state)
        self.cron = MemoryCron(state)
        self.queues = MemoryQueues(state, self.cron)
        self.journal = MemoryJournal(state)
        self.security = MemorySecurity(state)
        self.maintenance = MemoryMaintenance(state)
        self.rollups = MemoryRollups(state, self.cron)
        self.search = MemorySearch(state)
        self.workers = MemoryWorkers(state)
        self.analytics = MemoryAnalytics(state)


class MemoryStore(MemoryRoles):
    """`core.ports.Store` in memory, for tests and for programs that can afford to lose waiting messages.

    `events_kept` bounds the journal (None: unbounded), since there is no archive. `strategy` decides how blocking polls
    wait, instead of `scan_every` and `listening_scan_every`; async tasks never spin, whatever the strategy.
    """

    def __init__(
        self,
        *,
        clock: Clock = _AUTHORITY,
        settings: StoreSettings = _DEFAULTS,
        random: Callable[[], float] = random.random,
        events_kept: int | None = _EVENTS_KEPT,
        strategy: Strategy | None = None,
    ) -> None:
        super().__init__(MemoryState(clock, settings, random, events_kept, strategy))

    def run(self, operation: Operation[R], conn: Any = None) -> R:
        if not isinstance(operation, MemoryOperation):
            raise foreign(operation)
        if conn is not None:
            raise InvalidInput(
                "the memory store has no connections: its changes cannot be part of a transaction",
                hint="leave conn out, or use the PostgreSQL store",
            )
        return operation.call()

    def run_idempotent(self, request: IdempotencyKey, do: IdempotentCall) -> StoredResponse | None:
        with self.security.stored_response(request) as stored:
            if not stored:
                stored.append(do(None))
        return stored[0]

    def events(self) -> list[Event]:
        """The journal of all queues, oldest first."""
        with self.state.lock:
            return [event for event, _ in self.state.events]

    def connections(self) -> Connections:
        return NO_CONNECTIONS

    def close(self) -> None:
        """No-op: the messages are freed with the object."""


class AsyncMemoryStore(MemoryRoles):
    """An async view of the given store: blocking and async code of one program may share its messages."""

    def __init__(self, store: MemoryStore) -> None:
        vars(self).update(vars(store))
        self._store = store

    async def run(self, operation: Operation[R], conn: Any = None) -> R:
        """Does not wait: the lock is held for microseconds."""
        return self._store.run(operation, conn)

    async def run_idempotent(self, request: IdempotencyKey, do: AsyncIdempotentCall) -> StoredResponse | None:
        with self.security.stored_response(request) as stored:
            if not stored:
                stored.append(await do(None))
        return stored[0]

    async def connections(self) -> Connections:
        return NO_CONNECTIONS

    async def close(self) -> None:
        self._store.close()
