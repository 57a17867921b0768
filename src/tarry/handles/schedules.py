"""Management of schedules, for operators and programs."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from tarry.core import cron_explain, limits
from tarry.core.cron import ScheduleSpec, ScheduleState, TickRecord, check_prefix
from tarry.core.cron_plan import Fire
from tarry.core.cron_rulings import PayloadOf
from tarry.core.errors import InvalidInput
from tarry.core.ports import AsyncStore, Store
from tarry.core.schedules import Ticks
from tarry.core.settings import StoreSettings
from tarry.handles import cron_asks
from tarry.handles.aside import Aside
from tarry.handles.asking import Ask, answered, answered_aside, answered_async
from tarry.handles.cron_asks import Owned
from tarry.handles.texts import checked_text

R = TypeVar("R")


def declared(specs: Iterable[ScheduleSpec], settings: StoreSettings) -> list[ScheduleSpec]:
    """Configurations that need no code, each with a payload within the limit."""
    found = list(specs)
    for spec in found:
        if spec.payload is None or isinstance(spec.schedule, Ticks):
            raise InvalidInput(
                f"schedule {spec.prefix!r} has no payload: only the program that makes its payloads can install it",
                hint="with app.cron() as cron: cron.install_cron(…)",
            )
        limits.check_payload_size(spec.payload, settings.payload_limit)
    return found


def checked_range(since: datetime, until: datetime) -> tuple[datetime, datetime]:
    found = limits.check_instant(since, "since"), limits.check_instant(until, "until")
    if found[1] <= found[0]:
        raise InvalidInput(f"nothing lies between {found[0].isoformat()} and {found[1].isoformat()}: it ends first")
    return found


def checked_span(since: datetime | None, until: datetime | None) -> tuple[datetime | None, datetime | None]:
    return (
        None if since is None else limits.check_instant(since, "since"),
        None if until is None else limits.check_instant(until, "until"),
    )


def explained(tick: datetime, seen: tuple[ScheduleState, datetime, Sequence[TickRecord]]) -> str:
    state, now, records = seen
    return cron_explain.explain(state, tick, now, records)


class Schedules:
    """Management of existing schedules. To install one: `app.cron()`."""

    def __init__(self, store: Store, owned: Mapping[str, Owned] | None = None) -> None:
        self._store = store
        self._owned: Mapping[str, Owned] = {} if owned is None else owned

    def list(self, *, conn: Any = None) -> builtins.list[ScheduleState]:
        return self._store.schedules(conn=conn)

    def get(self, prefix: str, *, conn: Any = None) -> ScheduleState:
        return answered(self._store, cron_asks.found(check_prefix(prefix), conn))

    def put(self, spec: ScheduleSpec, *, conn: Any = None) -> ScheduleState:
        """Install a configuration that needs no code: any scheduler can plan it."""
        (wanted,) = declared([spec], self._store.settings)
        return answered(self._store, cron_asks.install(wanted, None, conn))

    def apply(self, specs: Sequence[ScheduleSpec], *, remove: Iterable[str] = (), conn: Any = None) -> None:
        """Install many and remove others, all or nothing."""
        return answered(self._store, cron_asks.apply(declared(specs, self._store.settings), list(remove), conn))

    def delete(self, prefix: str, *, conn: Any = None) -> bool:
        """Remove a schedule and its undelivered messages. False if there was none."""
        return answered(self._store, cron_asks.uninstall(check_prefix(prefix), None, conn))

    def pause(self, prefix: str, *, reason: str | None = None, conn: Any = None) -> ScheduleState:
        """Stop firing. Messages that are already due are still delivered."""
        why = checked_text(reason, "reason")
        return answered(self._store, cron_asks.pause(check_prefix(prefix), why, self._payload_of(prefix), conn))

    def resume(self, prefix: str, *, conn: Any = None) -> ScheduleState:
        """Continue with the next tick; ticks during the pause are skipped."""
        return answered(self._store, cron_asks.resume(check_prefix(prefix), self._payload_of(prefix), conn))

    def trigger(self, prefix: str, *, conn: Any = None) -> datetime:
        """Fire now, in addition to the schedule. Returns the tick of this run."""
        return answered(self._store, cron_asks.trigger(check_prefix(prefix), self._payload_of(prefix), conn))

    def skip_next(self, prefix: str, *, conn: Any = None) -> datetime:
        """Skip the next tick that would fire, and return it."""
        return answered(self._store, cron_asks.skip(check_prefix(prefix), conn))

    def missing(self, prefix: str, since: datetime, until: datetime, *, conn: Any = None) -> builtins.list[datetime]:
        """The ticks in [since, until) without a message: what `backfill` would create."""
        span = checked_range(since, until)
        return answered(self._store, cron_asks.missing(check_prefix(prefix), *span, conn))

    def backfill(self, prefix: str, since: datetime, until: datetime, *, conn: Any = None) -> builtins.list[datetime]:
        """Create the messages of those ticks now. Returns the ticks."""
        span = checked_range(since, until)
        filling = cron_asks.backfill(check_prefix(prefix), *span, self._payload_of(prefix), conn)
        return answered(self._store, filling)

    def preview(self, prefix: str, n: int = 10, *, conn: Any = None) -> builtins.list[Fire]:
        """The next `n` ticks, from the code that plans them."""
        return answered(self._store, cron_asks.preview(check_prefix(prefix), limits.check_count(n), conn))

    def explain(self, prefix: str, tick: datetime, *, conn: Any = None) -> str:
        """The verdict of a tick and its reason, past or expected."""
        at = limits.check_instant(tick, "tick")
        return explained(at, answered(self._store, cron_asks.explanation(check_prefix(prefix), at, conn)))

    def history(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> builtins.list[TickRecord]:
        """The decisions about its ticks, newest first. The ledger outlives the schedule."""
        span = checked_span(since, until)
        return self._store.ticks(
            check_prefix(prefix), since=span[0], until=span[1], limit=limits.check_count(limit, "limit"), conn=conn
        )

    def _payload_of(self, prefix: str) -> PayloadOf | None:
        own = self._owned.get(prefix)
        return None if own is None else own.payload_of


class AsyncSchedules:
    """`Schedules` for async code."""

    def __init__(self, store: AsyncStore, owned: Mapping[str, Owned] | None = None) -> None:
        self._store = store
        self._owned: Mapping[str, Owned] = {} if owned is None else owned
        self.aside = Aside("tarry-schedules")
        """Where ticks are computed: a rare expression or a long backfill would keep the event loop from answering."""

    async def list(self, *, conn: Any = None) -> builtins.list[ScheduleState]:
        return await self._store.schedules(conn=conn)

    async def get(self, prefix: str, *, conn: Any = None) -> ScheduleState:
        return await self._answered(cron_asks.found(check_prefix(prefix), conn))

    async def put(self, spec: ScheduleSpec, *, conn: Any = None) -> ScheduleState:
        """Install a configuration that needs no code: any scheduler can plan it."""
        (wanted,) = declared([spec], self._store.settings)
        return await self._answered(cron_asks.install(wanted, None, conn))

    async def apply(self, specs: Sequence[ScheduleSpec], *, remove: Iterable[str] = (), conn: Any = None) -> None:
        """Install many and remove others, all or nothing."""
        wanted = declared(specs, self._store.settings)
        return await self._answered(cron_asks.apply(wanted, list(remove), conn))

    async def delete(self, prefix: str, *, conn: Any = None) -> bool:
        """Remove a schedule and its undelivered messages. False if there was none."""
        return await self._answered(cron_asks.uninstall(check_prefix(prefix), None, conn))

    async def pause(self, prefix: str, *, reason: str | None = None, conn: Any = None) -> ScheduleState:
        """Stop firing. Messages that are already due are still delivered."""
        why = checked_text(reason, "reason")
        return await self._answered(cron_asks.pause(check_prefix(prefix), why, self._payload_of(prefix), conn))

    async def resume(self, prefix: str, *, conn: Any = None) -> ScheduleState:
        """Continue with the next tick; ticks during the pause are skipped."""
        return await self._answered(cron_asks.resume(check_prefix(prefix), self._payload_of(prefix), conn))

    async def trigger(self, prefix: str, *, conn: Any = None) -> datetime:
        """Fire now, in addition to the schedule. Returns the tick of this run."""
        return await self._answered(cron_asks.trigger(check_prefix(prefix), self._payload_of(prefix), conn))

    async def skip_next(self, prefix: str, *, conn: Any = None) -> datetime:
        """Skip the next tick that would fire, and return it."""
        return await self._answered(cron_asks.skip(check_prefix(prefix), conn))

    async def missing(
        self, prefix: str, since: datetime, until: datetime, *, conn: Any = None
    ) -> builtins.list[datetime]:
        """The ticks in [since, until) without a message: what `backfill` would create."""
        span = checked_range(since, until)
        return await self._answered(cron_asks.missing(check_prefix(prefix), *span, conn))

    async def backfill(
        self, prefix: str, since: datetime, until: datetime, *, conn: Any = None
    ) -> builtins.list[datetime]:
        """Create the messages of those ticks now. Returns the ticks."""
        span = checked_range(since, until)
        return await self._answered(cron_asks.backfill(check_prefix(prefix), *span, self._payload_of(prefix), conn))

    async def preview(self, prefix: str, n: int = 10, *, conn: Any = None) -> builtins.list[Fire]:
        """The next `n` ticks, from the code that plans them."""
        return await self._answered(cron_asks.preview(check_prefix(prefix), limits.check_count(n), conn))

    async def explain(self, prefix: str, tick: datetime, *, conn: Any = None) -> str:
        """The verdict of a tick and its reason, past or expected."""
        at = limits.check_instant(tick, "tick")
        seen = await self._answered(cron_asks.explanation(check_prefix(prefix), at, conn))
        return await self.aside.run(explained, at, seen)

    async def history(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> builtins.list[TickRecord]:
        """The decisions about its ticks, newest first. The ledger outlives the schedule."""
        span = checked_span(since, until)
        return await self._store.ticks(
            check_prefix(prefix), since=span[0], until=span[1], limit=limits.check_count(limit, "limit"), conn=conn
        )

    def _payload_of(self, prefix: str) -> PayloadOf | None:
        own = self._owned.get(prefix)
        return None if own is None else own.payload_of

    async def _answered(self, ask: Ask[R]) -> R:
        if self._owned:  # payload functions of a program run in the thread of its event loop
            return await answered_async(self._store, ask)
        return await answered_aside(self._store, ask, self.aside)
