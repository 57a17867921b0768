"""Schedules from code: `with app.cron() as cron: cron.install_daily(…)`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import time, timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from tarry.core import schedules
from tarry.core.cron import CronMessage
from tarry.core.ports import AsyncStore, Store
from tarry.handles.asking import answered, answered_async
from tarry.handles.schedules import AsyncSchedules, Schedules
from tarry.services.background import Background
from tarry.services.installing import Generate, Given, Installed, Installing
from tarry.services.loop import Loop, ended
from tarry.services.scheduler import SCAN_EVERY, AsyncScheduler, Scheduler


class Cron:
    """Installs schedules from code. As a context manager it also plans in the background until the block ends: its own
    schedules with payload functions, and all others that are due.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._scheduler = Scheduler(store)
        self._background: Background | None = None
        limit, duty = store.settings.payload_limit, self._scheduler.duty
        self._installing = Installing(duty, limit, "with app.cron() as cron: …")
        self.schedules = Schedules(store, duty.owned)
        """Management of the same schedules; those of this program can be triggered and backfilled here."""

    def install_cron(self, prefix: str, expression: str, *, zone: str, queue: str, **given: Unpack[Given]) -> Installed:
        """Install by a cron expression of five or six fields, including `L`, `LW`, `5L`, `1#2`, `@daily`."""
        return answered(self._store, self._installing.schedule(prefix, schedules.Cron(expression, zone), queue, given))

    def install_daily(
        self, prefix: str, hours: Iterable[str | time], *, zone: str, queue: str, **given: Unpack[Given]
    ) -> Installed:
        """Install at these hours every day, by the wall clock of the zone."""
        return answered(self._store, self._installing.schedule(prefix, schedules.Daily(hours, zone), queue, given))

    def install_periodic(self, prefix: str, every: timedelta, *, queue: str, **given: Unpack[Given]) -> Installed:
        """Install with a fixed interval, aligned to the epoch: every hour is on the hour, in UTC."""
        return answered(self._store, self._installing.schedule(prefix, schedules.Periodic(every), queue, given))

    def install_tick(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any = None
    ) -> None:
        """Install explicit ticks. One transaction deletes the undelivered messages of this prefix with another hash and
        inserts these; a tick that was already decided is unchanged.
        """
        answered(self._store, self._installing.ticks(config_hash, prefix, messages, queue=queue, conn=conn))

    def uninstall_tick(self, config_hash: str, prefix: str, *, conn: Any = None) -> None:
        """Delete undelivered messages of this prefix and hash."""
        answered(self._store, self._installing.uninstall(config_hash, prefix, conn=conn))

    def install(self, config_hash: str, prefix: str, every: timedelta, generate: Generate, *, queue: str) -> Installed:
        """Call `generate` periodically, with the time of the database's clock, for the ticks to install. Close the
        result, or the block, to stop.
        """
        return answered(self._store, self._installing.generator(config_hash, prefix, every, generate, queue=queue))

    def __enter__(self) -> Self:
        if self._background is None:
            self._background = Background("tarry-cron", self._scheduler.cycle, every=SCAN_EVERY)
            self._background.start()
            self._installing.plans = self._background.wake
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop planning. Planned messages stay."""
        background, self._background = self._background, None
        self._installing.plans = None
        if background is not None:
            background.stop()


class AsyncCron:
    """`Cron` for async code: planning is a task of the running loop."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._scheduler = AsyncScheduler(store)
        self._loop: Loop | None = None
        self._task: asyncio.Task[None] | None = None
        limit, duty = store.settings.payload_limit, self._scheduler.duty
        self._installing = Installing(duty, limit, "async with app.cron() as cron: …")
        self.schedules = AsyncSchedules(store, duty.owned)
        """Management of the same schedules; those of this program can be triggered and backfilled here."""

    async def install_cron(
        self, prefix: str, expression: str, *, zone: str, queue: str, **given: Unpack[Given]
    ) -> Installed:
        """Install by a cron expression of five or six fields, including `L`, `LW`, `5L`, `1#2`, `@daily`."""
        schedule = schedules.Cron(expression, zone)
        return await answered_async(self._store, self._installing.schedule(prefix, schedule, queue, given))

    async def install_daily(
        self, prefix: str, hours: Iterable[str | time], *, zone: str, queue: str, **given: Unpack[Given]
    ) -> Installed:
        """Install at these hours every day, by the wall clock of the zone."""
        schedule = schedules.Daily(hours, zone)
        return await answered_async(self._store, self._installing.schedule(prefix, schedule, queue, given))

    async def install_periodic(self, prefix: str, every: timedelta, *, queue: str, **given: Unpack[Given]) -> Installed:
        """Install with a fixed interval, aligned to the epoch: every hour is on the hour, in UTC."""
        schedule = schedules.Periodic(every)
        return await answered_async(self._store, self._installing.schedule(prefix, schedule, queue, given))

    async def install_tick(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any = None
    ) -> None:
        """Install explicit ticks. One transaction deletes the undelivered messages of this prefix with another hash and
        inserts these; a tick that was already decided is unchanged.
        """
        ask = self._installing.ticks(config_hash, prefix, messages, queue=queue, conn=conn)
        await answered_async(self._store, ask)

    async def uninstall_tick(self, config_hash: str, prefix: str, *, conn: Any = None) -> None:
        """Delete undelivered messages of this prefix and hash."""
        await answered_async(self._store, self._installing.uninstall(config_hash, prefix, conn=conn))

    async def install(
        self, config_hash: str, prefix: str, every: timedelta, generate: Generate, *, queue: str
    ) -> Installed:
        """Call `generate` periodically, with the time of the database's clock, for the ticks to install. Close the
        result, or the block, to stop.
        """
        ask = self._installing.generator(config_hash, prefix, every, generate, queue=queue)
        return await answered_async(self._store, ask)

    async def __aenter__(self) -> Self:
        if self._loop is None:
            self._loop = Loop("cron", self._scheduler.cycle, every=SCAN_EVERY)
            self._task = asyncio.create_task(self._loop.run(), name="tarry-cron")
            self._installing.plans = self._loop.wake
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop planning. Planned messages stay."""
        if self._task is not None and self._loop is not None:
            self._loop.stop()
            await ended(self._task)
        self._loop = self._task = self._installing.plans = None
