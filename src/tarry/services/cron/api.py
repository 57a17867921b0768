"""Schedules from code: `with app.cron() as cron: cron.install_daily(…)`."""

from collections.abc import Callable, Iterable
from datetime import datetime, time, timedelta
from typing import Any, Self, Unpack

from tarry.api.schedule_commands import AsyncOffload, AsyncScheduleCommands
from tarry.api.schedules import AsyncSchedules, Owned
from tarry.core.cron import schedule_types
from tarry.core.cron.model import CronMessage, ScheduleState, check_hash, check_schedule_name
from tarry.core.cron.schedule_types import Schedule
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.monotonic import elapsed_s
from tarry.core.ports import AsyncStore
from tarry.services.cron.scheduler import SCAN_EVERY, AsyncScheduler, Generator
from tarry.services.cron.validation import Options, planned, spec_of, ticks_spec
from tarry.services.loop import Loop

Generate = Callable[[datetime], Iterable[CronMessage]]


class InstallOptions(Options, total=False):
    """Schedule options apart from name, times and queue."""

    payload: Any
    """A value, or a function of the tick."""
    conn: Any


class Installed:
    """An installed schedule. After `close`, this process no longer plans it; planned messages stay."""

    def __init__(self, name: str, state: ScheduleState | None, close: Callable[[str], None]) -> None:
        self.name = name
        self.state = state
        self._close = close

    def close(self) -> None:
        self._close(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AsyncCron:
    """Installs schedules from code. As a context manager it also plans in the background until the block ends: its own
    schedules with payload functions, and all others that are due."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._payload_limit = store.settings.payload_limit
        self._scheduler = AsyncScheduler(store)
        self._background: Loop | None = None
        self._commands = AsyncScheduleCommands(store, AsyncOffload("tarry-cron", lambda: True))
        self.schedules = AsyncSchedules(store, self._scheduler.owned)
        """Management of the same schedules; those of this program can be triggered and backfilled here."""

    async def install_cron(
        self, name: str, expression: str, *, zone: str, queue: str, **given: Unpack[InstallOptions]
    ) -> Installed:
        """Install by a cron expression of five or six fields, including `L`, `LW`, `5L`, `1#2`, `@daily`."""
        return await self._install(name, schedule_types.Cron(expression, zone), queue, given)

    async def install_daily(
        self, name: str, hours: Iterable[str | time], *, zone: str, queue: str, **given: Unpack[InstallOptions]
    ) -> Installed:
        """Install at these hours every day, by the wall clock of the zone."""
        return await self._install(name, schedule_types.Daily(hours, zone), queue, given)

    async def install_periodic(
        self, name: str, every: timedelta, *, queue: str, **given: Unpack[InstallOptions]
    ) -> Installed:
        """Install with a fixed interval, aligned to the epoch: every hour is on the hour, in UTC."""
        return await self._install(name, schedule_types.Periodic(every), queue, given)

    async def _install(self, name: str, schedule: Schedule, queue: str, given: InstallOptions) -> Installed:
        conn, payload = given.pop("conn", None), given.pop("payload", None)
        spec, payload_of = spec_of(
            name, schedule, queue=queue, payload=payload, options=given, payload_limit=self._payload_limit
        )
        if payload_of is not None:
            self._require_planning(name)
        state = await self._commands.install(spec, payload_of, conn)
        if payload_of is not None:
            self._scheduler.owned[name] = Owned(state.generation, payload_of)
        return self._installed(name, state)

    async def install_tick(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any = None
    ) -> None:
        """Install explicit ticks. One transaction deletes the undelivered messages of this prefix with another hash and
        inserts these; a tick that was already decided is unchanged."""
        spec = ticks_spec(config_hash, prefix, queue)
        await self._commands.install_ticks(spec, planned(spec, messages, self._payload_limit), conn)

    async def uninstall_tick(self, config_hash: str, prefix: str, *, conn: Any = None) -> None:
        """Delete undelivered messages of this prefix and hash."""
        await self._commands.uninstall(check_schedule_name(prefix), check_hash(config_hash), conn)

    async def install(
        self, config_hash: str, name: str, every: timedelta, generate: Generate, *, queue: str
    ) -> Installed:
        """Call `generate` periodically, with the time of the database's clock, for the ticks to install. Close the
        result, or the block, to stop."""
        if not isinstance(every, timedelta) or every <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be positive, got {every!r:.80}")
        self._require_planning(name)
        spec, every_s = ticks_spec(config_hash, name, queue), every.total_seconds()
        messages = generate(await self._commands.now(None))
        await self._commands.install_ticks(spec, planned(spec, messages, self._payload_limit))
        self._scheduler.generators[name] = Generator(spec, every_s, generate, elapsed_s() + every_s, installed=True)
        return self._installed(name, None)

    def _installed(self, name: str, state: ScheduleState | None) -> Installed:
        if self._background is not None:
            self._background.wake()
        return Installed(name, state, self._forget)

    def _forget(self, name: str) -> None:
        self._scheduler.owned.pop(name, None)
        self._scheduler.generators.pop(name, None)

    def _require_planning(self, name: str) -> None:
        if self._background is None:
            problem = f"schedule {name!r} needs this program to plan it, and it is not planning"
            raise InvalidState(problem, hint="async with app.cron() as cron: …")

    async def __aenter__(self) -> Self:
        if self._background is None:
            self._background = Loop("tarry-cron", self._scheduler.cycle, every=SCAN_EVERY)
            self._background.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop planning. Planned messages stay."""
        background, self._background = self._background, None
        if background is not None:
            await background.end()
