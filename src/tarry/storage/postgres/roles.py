"""The roles of a PostgreSQL store, shared by the blocking and the awaiting store."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from tarry.core.analytics.port import AnalyticsRole
from tarry.core.clock import AuthorityClock, Clock
from tarry.core.settings import StoreSettings
from tarry.core.wakeup.wait_queue import WaitQueue
from tarry.storage.postgres.analytics import operations as analytics_operations
from tarry.storage.postgres.connections import keywords
from tarry.storage.postgres.cron.role import PostgresCron
from tarry.storage.postgres.dead_letters.role import PostgresDeadLetters
from tarry.storage.postgres.fencing import ServerSession
from tarry.storage.postgres.journal import recent
from tarry.storage.postgres.journal.role import PostgresJournal
from tarry.storage.postgres.maintenance.role import PostgresMaintenance
from tarry.storage.postgres.messages.depth import DepthBudget
from tarry.storage.postgres.messages.live_heads import LiveHeads
from tarry.storage.postgres.messages.role import PostgresMessages
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.queues.role import PostgresQueues
from tarry.storage.postgres.rollups.role import PostgresRollups
from tarry.storage.postgres.schema_name import listen_dsn_of
from tarry.storage.postgres.search.role import PostgresSearch
from tarry.storage.postgres.security.role import PostgresSecurity
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.wakeup.listener import Listener
from tarry.storage.postgres.wakeup.role import PostgresWakeup
from tarry.storage.postgres.workers.role import PostgresWorkers


class PostgresRoles:
    def __init__(self, dsn: str, clock: Clock | None, settings: StoreSettings, poll_timer: Callable[[], float]) -> None:
        """`poll_timer` measures how long polls take, which decides where the next poll begins."""
        clock = clock or AuthorityClock()
        self.settings, self.clock = settings, clock
        self._left_sessions: list[ServerSession] = []
        wait_queue = WaitQueue(
            scan_every=settings.scan_every,
            listening_scan_every=settings.listening_scan_every,
            monotonic=time.monotonic,
        )
        trusted = isinstance(clock, AuthorityClock)
        keywords(settings.listen_dsn or dsn)  # rejects an invalid DSN without quoting its password
        self._listener = Listener(listen_dsn_of(dsn, settings.listen_dsn), wait_queue, trusted=trusted)
        budget = DepthBudget(poll_timer)
        self.messages = PostgresMessages(clock, settings, poll_timer, budget)
        live_heads = LiveHeads(poll_timer)
        self.queues = PostgresQueues(clock, settings, live_heads)
        self.wakeup = PostgresWakeup(clock, settings, wait_queue, self._listener, live_heads)
        self.dead_letters = PostgresDeadLetters(clock, settings)
        self.cron = PostgresCron(clock, settings)
        self.journal = PostgresJournal(clock, settings)
        self.security = PostgresSecurity(clock, settings, budget)
        self.maintenance = PostgresMaintenance(clock, settings, live_heads)
        self.rollups = PostgresRollups(clock, settings)
        self.search = PostgresSearch(clock, settings)
        self.workers = PostgresWorkers(clock, settings)
        self.analytics = _analytics_role()


def _analytics_role() -> AnalyticsRole:
    """The analytics role: each method creates the operation of the same name."""

    def method(make: Callable[..., Op[Any]], *, atomic: bool = False) -> Callable[..., PostgresOperation[Any]]:
        return lambda *args, **options: PostgresOperation(lambda own: make(*args, **options), atomic)

    methods = {name: method(getattr(analytics_operations, name)) for name in analytics_operations.OF_THE_PORT}
    events, mute = method(recent.look_back, atomic=True), method(analytics_operations.mute, atomic=True)
    return cast("AnalyticsRole", SimpleNamespace(**methods, events=events, mute=mute))
