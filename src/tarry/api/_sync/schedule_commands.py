# Generated from src/tarry/api/schedule_commands.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.schedule_commands`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tarry.api.schedule_commands import TRIES, Make, contended
from tarry.core._sync.ports import Store
from tarry.core.cron import schedule_changes
from tarry.core.cron.model import ScheduleChange, ScheduleSpec, ScheduleState, TickChange, TickRecord
from tarry.core.cron.schedule_changes import Current, PayloadOf, existing

P = ParamSpec("P")
R = TypeVar("R")


class Offload:
    """Runs computations in a dedicated thread, one at a time; in blocking code, inline. With a single thread the event
    loop has one competitor for the interpreter, however many requests compute; a dedicated one leaves the loop's thread
    pool free.

    While `inline()` is true, computations run in the caller's thread: they may call user functions."""

    def __init__(self, name: str, inline: Callable[[], object]) -> None:
        self._inline = inline

    def run(self, compute: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return compute(*args, **kwargs)


class ScheduleCommands:
    def __init__(self, store: Store, offload: Offload) -> None:
        self._store = store
        self._offload = offload

    def change(self, name: str, make: Make, conn: Any, target: ScheduleSpec | None = None) -> ScheduleState | None:
        """Apply the change computed by `make` and return the new state; None if the schedule does not exist. The ledger is
        read only if waiting ticks may be withdrawn: the schedule exists and differs from `target`."""
        run, cron = self._store.run, self._store.cron
        for _ in range(TRIES):
            states = run(cron.schedules(name), conn)
            state = states[0] if states else None
            waiting: list[TickRecord] = []
            if state is not None and state.spec != target:
                waiting = run(cron.waiting_ticks(name), conn)
            now = self.now(conn)
            change = self._offload.run(make, Current(name, state, now, waiting))
            if change is None:
                return state
            if run(cron.apply_changes([change]), conn)[0]:
                return change.after
        raise contended(name)

    def now(self, conn: Any) -> datetime:
        """The store's time. Read it after the schedules: an earlier reading could precede the last decision of another
        process. That looks like a clock that was set back, and ticks of the last minute would be decided again, under a
        configuration that was not in force then."""
        return self._store.run(self._store.queues.now(), conn)

    def install(self, spec: ScheduleSpec, payload_of: PayloadOf | None, conn: Any) -> ScheduleState:
        make = partial(schedule_changes.install, spec=spec, payload_of=payload_of)
        return existing(self.change(spec.name, make, conn, spec), spec.name)

    def install_ticks(
        self, spec: ScheduleSpec, ticks: Sequence[TickChange], conn: Any = None, *, again: bool = False
    ) -> bool:
        """Install the ticks of a program. `again`: only if this configuration is still installed. Returns whether it is."""
        installed = True

        def make(current: Current) -> ScheduleChange | None:
            nonlocal installed
            installed = not again or (current.state is not None and current.state.spec == spec)
            return schedule_changes.install_ticks(current, spec, ticks) if installed else None

        self.change(spec.name, make, conn, spec)
        return installed

    def uninstall(self, name: str, config_hash: str | None, conn: Any) -> bool:
        """Uninstall a schedule and return whether it existed. On a retry it may be gone because the first attempt
        succeeded and only its response was lost; this counts as existed."""
        existed = False

        def make(current: Current) -> ScheduleChange | None:
            nonlocal existed
            change = schedule_changes.uninstall(current, config_hash)
            existed = existed or change is not None
            return change

        self.change(name, make, conn)
        return existed
