"""Schedules from code: `with app.cron() as cron: cron.install_daily(…)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, time, timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from tarry.core import schedules
from tarry.core.cron import CronMessage, ScheduleState, check_hash, check_prefix
from tarry.core.errors import InvalidInput, Refused
from tarry.core.ports import AsyncStore, Store
from tarry.handles import cron_asks
from tarry.handles.asking import answered, answered_async
from tarry.handles.cron_asks import Owned
from tarry.handles.elapsed import elapsed_s
from tarry.handles.schedule_specs import Options, planned, spec_of, ticks_spec
from tarry.handles.schedules import AsyncSchedules, Schedules
from tarry.services.background import Background
from tarry.services.loop import Loop
from tarry.services.scheduler import SCAN_EVERY, AsyncScheduler, Generator, Scheduler


class Installed:
    """A schedule that was installed. `close` ends what this process does for it; what was planned stays."""

    def __init__(self, prefix: str, state: ScheduleState | None, close: Callable[[str], None]) -> None:
        self.prefix = prefix
        self.state = state
        self._close = close

    def close(self) -> None:
        self._close(self.prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cron:
    """Install schedules from code. As a context manager it plans as well, in the background, until the block ends: its own
    schedules whose payloads are functions, and whatever else needs planning."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._scheduler = Scheduler(store)
        self._background: Background | None = None
        self.schedules = Schedules(store, self._scheduler.duty.owned)
        """The same schedules, to look after; those of this program can be triggered and filled in here."""

    def install_cron(
        self,
        prefix: str,
        expression: str,
        *,
        zone: str,
        queue: str,
        payload: Any = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Installed:
        """By a cron expression of five or six fields: `L`, `LW`, `5L`, `1#2`, `@daily` and friends included."""
        return self._install(prefix, schedules.Cron(expression, zone), queue, payload, options, conn)

    def install_daily(
        self,
        prefix: str,
        hours: Iterable[str | time],
        *,
        zone: str,
        queue: str,
        payload: Any = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Installed:
        """At these hours every day, by the wall clock of the zone."""
        return self._install(prefix, schedules.Daily(hours, zone), queue, payload, options, conn)

    def install_periodic(
        self,
        prefix: str,
        every: timedelta,
        *,
        queue: str,
        payload: Any = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Installed:
        """Every so often, aligned to the epoch: every hour is on the hour, by UTC."""
        return self._install(prefix, schedules.Periodic(every), queue, payload, options, conn)

    def install_tick(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any = None
    ) -> None:
        """Ticks of your own choice. In one transaction, the messages of this prefix with another hash that nobody was
        given yet go, and these come; a tick that the ledger knows is left as it is."""
        spec = ticks_spec(config_hash, prefix, queue)
        ticks = planned(messages, self._store.settings.payload_limit)
        answered(self._store, cron_asks.install_ticks(spec, ticks, conn))

    def uninstall_tick(self, config_hash: str, prefix: str, *, conn: Any = None) -> None:
        """Take back what nobody was given yet of this prefix and hash, and of no other."""
        answered(self._store, cron_asks.uninstall(check_prefix(prefix), check_hash(config_hash), conn))

    def install(
        self,
        config_hash: str,
        prefix: str,
        every: timedelta,
        generate: Callable[[datetime], Iterable[CronMessage]],
        *,
        queue: str,
    ) -> Installed:
        """Ask `generate` now and then, with the time by the database's clock, which ticks there are. Close what it
        returns, or the block, to stop asking."""
        if not isinstance(every, timedelta) or every <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be longer than nothing, not {every!r:.80}")
        self._require_running(prefix)
        spec = ticks_spec(config_hash, prefix, queue)
        first = planned(list(generate(self._store.now())), self._store.settings.payload_limit)
        answered(self._store, cron_asks.install_ticks(spec, first, None))
        every_s = every.total_seconds()
        self._scheduler.duty.generators[prefix] = Generator(spec, every_s, generate, elapsed_s() + every_s, True)
        self._wake()
        return Installed(prefix, None, self._forgotten)

    def __enter__(self) -> Self:
        if self._background is None:
            self._background = Background("tarry-cron", self._scheduler.cycle, every=SCAN_EVERY)
            self._background.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop planning. What was planned stays."""
        background, self._background = self._background, None
        if background is not None:
            background.stop()

    def _wake(self) -> None:
        if self._background is not None:
            self._background.wake()

    @property
    def _running(self) -> bool:
        return self._background is not None

    def _install(
        self, prefix: str, schedule: schedules.Schedule, queue: str, payload: Any, options: Options, conn: Any
    ) -> Installed:
        spec, payload_of = spec_of(
            prefix,
            schedule,
            queue=queue,
            payload=payload,
            options=options,
            payload_limit=self._store.settings.payload_limit,
        )
        if payload_of is not None:
            self._require_running(prefix)
        state = answered(self._store, cron_asks.install(spec, payload_of, conn))
        if payload_of is not None:
            self._scheduler.duty.owned[prefix] = Owned(state.generation, payload_of)
        self._wake()
        return Installed(prefix, state, self._forgotten)

    def _require_running(self, prefix: str) -> None:
        if not self._running:
            raise Refused(
                f"schedule {prefix!r} needs this program to plan it, and it is not planning",
                hint="with app.cron() as cron: …",
            )

    def _forgotten(self, prefix: str) -> None:
        self._scheduler.duty.owned.pop(prefix, None)
        self._scheduler.duty.generators.pop(prefix, None)


class AsyncCron:
    """`Cron` for code that awaits: planning is a task of the running loop."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._scheduler = AsyncScheduler(store)
        self._loop: Loop | None = None
        self._task: asyncio.Task[None] | None = None
        self.schedules = AsyncSchedules(store, self._scheduler.duty.owned)
        """The same schedules, to look after; those of this program can be triggered and filled in here."""

    async def install_cron(
        self,
        prefix: str,
        expression: str,
        *,
        zone: str,
        queue: str,
        payload: Any = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Installed:
        """By a cron expression of five or six fields: `L`, `LW`, `5L`, `1#2`, `@daily` and friends included."""
        return await self._install(prefix, schedules.Cron(expression, zone), queue, payload, options, conn)

    async def install_daily(
        self,
        prefix: str,
        hours: Iterable[str | time],
        *,
        zone: str,
        queue: str,
        payload: Any = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Installed:
        """At these hours every day, by the wall clock of the zone."""
        return await self._install(prefix, schedules.Daily(hours, zone), queue, payload, options, conn)

    async def install_periodic(
        self,
        prefix: str,
        every: timedelta,
        *,
        queue: str,
        payload: Any = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Installed:
        """Every so often, aligned to the epoch: every hour is on the hour, by UTC."""
        return await self._install(prefix, schedules.Periodic(every), queue, payload, options, conn)

    async def install_tick(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any = None
    ) -> None:
        """Ticks of your own choice. In one transaction, the messages of this prefix with another hash that nobody was
        given yet go, and these come; a tick that the ledger knows is left as it is."""
        spec = ticks_spec(config_hash, prefix, queue)
        ticks = planned(messages, self._store.settings.payload_limit)
        await answered_async(self._store, cron_asks.install_ticks(spec, ticks, conn))

    async def uninstall_tick(self, config_hash: str, prefix: str, *, conn: Any = None) -> None:
        """Take back what nobody was given yet of this prefix and hash, and of no other."""
        await answered_async(self._store, cron_asks.uninstall(check_prefix(prefix), check_hash(config_hash), conn))

    async def install(
        self,
        config_hash: str,
        prefix: str,
        every: timedelta,
        generate: Callable[[datetime], Iterable[CronMessage]],
        *,
        queue: str,
    ) -> Installed:
        """Ask `generate` now and then, with the time by the database's clock, which ticks there are. Close what it
        returns, or the block, to stop asking."""
        if not isinstance(every, timedelta) or every <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be longer than nothing, not {every!r:.80}")
        self._require_running(prefix)
        spec = ticks_spec(config_hash, prefix, queue)
        first = planned(list(generate(await self._store.now())), self._store.settings.payload_limit)
        await answered_async(self._store, cron_asks.install_ticks(spec, first, None))
        every_s = every.total_seconds()
        self._scheduler.duty.generators[prefix] = Generator(spec, every_s, generate, elapsed_s() + every_s, True)
        self._wake()
        return Installed(prefix, None, self._forgotten)

    async def __aenter__(self) -> Self:
        if self._task is None:
            self._loop = Loop("cron", self._scheduler.cycle, every=SCAN_EVERY)
            self._task = asyncio.create_task(self._loop.run(), name="tarry-cron")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop planning. What was planned stays."""
        if self._task is not None and self._loop is not None:
            self._loop.stop()
            await asyncio.wait([self._task])
        self._loop = self._task = None

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    @property
    def _running(self) -> bool:
        return self._loop is not None

    async def _install(
        self, prefix: str, schedule: schedules.Schedule, queue: str, payload: Any, options: Options, conn: Any
    ) -> Installed:
        spec, payload_of = spec_of(
            prefix,
            schedule,
            queue=queue,
            payload=payload,
            options=options,
            payload_limit=self._store.settings.payload_limit,
        )
        if payload_of is not None:
            self._require_running(prefix)
        state = await answered_async(self._store, cron_asks.install(spec, payload_of, conn))
        if payload_of is not None:
            self._scheduler.duty.owned[prefix] = Owned(state.generation, payload_of)
        self._wake()
        return Installed(prefix, state, self._forgotten)

    def _require_running(self, prefix: str) -> None:
        if not self._running:
            raise Refused(
                f"schedule {prefix!r} needs this program to plan it, and it is not planning",
                hint="async with app.cron() as cron: …",
            )

    def _forgotten(self, prefix: str) -> None:
        self._scheduler.duty.owned.pop(prefix, None)
        self._scheduler.duty.generators.pop(prefix, None)
