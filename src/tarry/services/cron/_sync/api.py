# Generated from src/tarry/services/cron/api.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.services.cron.api`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import time, timedelta
from typing import Any, Self, Unpack

from tarry.api._sync.schedule_commands import Offload, ScheduleCommands
from tarry.api._sync.schedules import Schedules
from tarry.api.schedules import Owned
from tarry.core._sync.ports import Store
from tarry.core.cron import schedule_types
from tarry.core.cron.model import CronMessage, ScheduleState, check_hash, check_schedule_name
from tarry.core.cron.schedule_types import Schedule
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.monotonic import elapsed_s
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.services.cron.api import Generate, Installed, InstallOptions
from tarry.services.cron.scheduler import SCAN_EVERY, Generator
from tarry.services.cron.validation import planned, spec_of, ticks_spec
from tarry.services.loop import Background


class Cron:
    """Installs schedules from code. As a context manager it also plans in the background until the block ends: its own
    schedules with payload functions, and all others that are due."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._payload_limit = store.settings.payload_limit
        self._scheduler = Scheduler(store)
        self._background: Background | None = None
        self._commands = ScheduleCommands(store, Offload("tarry-cron", lambda: True))
        self.schedules = Schedules(store, self._scheduler.owned)
        """Management of the same schedules; those of this program can be triggered and backfilled here."""

    def install_cron(
        self, name: str, expression: str, *, zone: str, queue: str, **given: Unpack[InstallOptions]
    ) -> Installed:
        """Install by a cron expression of five or six fields, including `L`, `LW`, `5L`, `1#2`, `@daily`."""
        return self._install(name, schedule_types.Cron(expression, zone), queue, given)

    def install_daily(
        self, name: str, hours: Iterable[str | time], *, zone: str, queue: str, **given: Unpack[InstallOptions]
    ) -> Installed:
        """Install at these hours every day, by the wall clock of the zone."""
        return self._install(name, schedule_types.Daily(hours, zone), queue, given)

    def install_periodic(
        self, name: str, every: timedelta, *, queue: str, **given: Unpack[InstallOptions]
    ) -> Installed:
        """Install with a fixed interval, aligned to the epoch: every hour is on the hour, in UTC."""
        return self._install(name, schedule_types.Periodic(every), queue, given)

    def _install(self, name: str, schedule: Schedule, queue: str, given: InstallOptions) -> Installed:
        conn, payload = given.pop("conn", None), given.pop("payload", None)
        spec, payload_of = spec_of(
            name, schedule, queue=queue, payload=payload, options=given, payload_limit=self._payload_limit
        )
        if payload_of is not None:
            self._require_planning(name)
        state = self._commands.install(spec, payload_of, conn)
        if payload_of is not None:
            self._scheduler.owned[name] = Owned(state.generation, payload_of)
        return self._installed(name, state)

    def install_tick(
        self, config_hash: str, prefix: str, messages: Iterable[CronMessage], *, queue: str, conn: Any = None
    ) -> None:
        """Install explicit ticks. One transaction deletes the undelivered messages of this prefix with another hash and
        inserts these; a tick that was already decided is unchanged."""
        spec = ticks_spec(config_hash, prefix, queue)
        self._commands.install_ticks(spec, planned(spec, messages, self._payload_limit), conn)

    def uninstall_tick(self, config_hash: str, prefix: str, *, conn: Any = None) -> None:
        """Delete undelivered messages of this prefix and hash."""
        self._commands.uninstall(check_schedule_name(prefix), check_hash(config_hash), conn)

    def install(self, config_hash: str, name: str, every: timedelta, generate: Generate, *, queue: str) -> Installed:
        """Call `generate` periodically, with the time of the database's clock, for the ticks to install. Close the
        result, or the block, to stop."""
        if not isinstance(every, timedelta) or every <= timedelta(0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be positive, got {every!r:.80}")
        self._require_planning(name)
        spec, every_s = ticks_spec(config_hash, name, queue), every.total_seconds()
        messages = generate(self._commands.now(None))
        self._commands.install_ticks(spec, planned(spec, messages, self._payload_limit))
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
            raise InvalidState(problem, hint="with app.cron() as cron: …")

    def __enter__(self) -> Self:
        if self._background is None:
            self._background = Background("tarry-cron", self._scheduler.cycle, every=SCAN_EVERY)
            self._background.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop planning. Planned messages stay."""
        background, self._background = self._background, None
        if background is not None:
            background.end()
