# Generated from src/tarry/api/schedules.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.schedules`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from tarry.api._sync.schedule_commands import Offload, ScheduleCommands
from tarry.api.schedule_commands import TRIES, contended
from tarry.api.schedules import MOST_PREVIEWED, MOST_RECORDS, PAGE, Decide, Owned, checked_range, declared
from tarry.api.validation import checked_text
from tarry.core import limits
from tarry.core._sync.ports import Store
from tarry.core.cron import explain, planner, schedule_changes
from tarry.core.cron.model import ScheduleChange, ScheduleSpec, ScheduleState, TickRecord, check_schedule_name
from tarry.core.cron.planner import Fire
from tarry.core.cron.schedule_changes import Current, PayloadOf, existing
from tarry.core.errors import InvalidInput, InvalidState


class Schedules:
    """Management of existing schedules. To install one: `app.cron()`."""

    def __init__(self, store: Store, owned: Mapping[str, Owned] | None = None) -> None:
        self._store = store
        self._cron = store.cron
        self._owned: Mapping[str, Owned] = {} if owned is None else owned
        self.offload = Offload("tarry-schedules", lambda: self._owned)
        """Computes ticks outside the event loop, which a rare expression or a long backfill would block."""
        self._commands = ScheduleCommands(store, self.offload)

    def list(self, *, conn: Any = None) -> builtins.list[ScheduleState]:
        return self._store.run(self._cron.schedules(), conn)

    def get(self, name: str, *, conn: Any = None) -> ScheduleState:
        states = self._store.run(self._cron.schedules(check_schedule_name(name)), conn)
        return existing(next(iter(states), None), name)

    def put(self, spec: ScheduleSpec, *, conn: Any = None) -> ScheduleState:
        """Install a configuration that needs no code: any scheduler can plan it."""
        declared([spec], self._store.settings)
        return self._commands.install(spec, None, conn)

    def apply(self, specs: Sequence[ScheduleSpec], *, remove: Iterable[str] = (), conn: Any = None) -> None:
        """Install `specs` and remove the schedules in `remove`, all or nothing."""
        checked, removed = declared(specs, self._store.settings), list(remove)
        for _ in range(TRIES):
            states = {state.name: state for state in self.list(conn=conn)}
            now = self._commands.now(conn)
            changes: builtins.list[ScheduleChange | None] = []
            for spec in checked:
                state, waiting = states.get(spec.name), builtins.list[TickRecord]()
                if state is not None and state.spec != spec:
                    waiting = self._store.run(self._cron.waiting_ticks(spec.name), conn)
                seen = Current(spec.name, state, now, waiting)
                changes.append(self.offload.run(schedule_changes.install, seen, spec, None))
            for name in removed:
                waiting = self._store.run(self._cron.waiting_ticks(name), conn)
                changes.append(schedule_changes.uninstall(Current(name, states.get(name), now, waiting), None))
            applied = [change for change in changes if change is not None]
            if not applied or all(self._store.run(self._cron.apply_changes(applied), conn)):
                return
        raise InvalidState("schedules are changed by others all the time; nothing was applied", hint="try again")

    def delete(self, name: str, *, conn: Any = None) -> bool:
        """Remove a schedule and its undelivered messages. False if there was none."""
        return self._commands.uninstall(check_schedule_name(name), None, conn)

    def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> ScheduleState:
        """Stop firing. Messages that are already due are still delivered."""
        why, payload_of = checked_text(reason, "reason"), self._payload_of(name)
        make = partial(schedule_changes.pause, reason=why, payload_of=payload_of)
        return existing(self._commands.change(check_schedule_name(name), make, conn), name)

    def resume(self, name: str, *, conn: Any = None) -> ScheduleState:
        """Continue with the next tick; ticks during the pause are skipped."""
        make = partial(schedule_changes.resume, payload_of=self._payload_of(name))
        return existing(self._commands.change(check_schedule_name(name), make, conn), name)

    def trigger(self, name: str, *, conn: Any = None) -> datetime:
        """Fire now, in addition to the schedule. Returns the tick of this run."""
        (tick,) = self._decided(name, partial(schedule_changes.trigger, payload_of=self._payload_of(name)), conn)
        return tick

    def skip(self, name: str, *, conn: Any = None) -> datetime:
        """Skip the next tick that would fire, and return it."""
        (tick,) = self._decided(name, schedule_changes.skip, conn)
        return tick

    def missing(self, name: str, since: datetime, until: datetime, *, conn: Any = None) -> builtins.list[datetime]:
        """The ticks in [since, until) without a message, which `backfill` would create."""
        span = checked_range(since, until)
        check_schedule_name(name)
        now = self._commands.now(conn)
        state = self.get(name, conn=conn)
        records = self._recorded(name, *span, conn)
        return self.offload.run(schedule_changes.missing, Current(name, state, now, records), span)

    def backfill(self, name: str, since: datetime, until: datetime, *, conn: Any = None) -> builtins.list[datetime]:
        """Create messages for the missing ticks in [since, until), due now. Returns the ticks."""
        span = checked_range(since, until)
        decide = partial(schedule_changes.backfill, span=span, payload_of=self._payload_of(name))
        return self._decided(name, decide, conn, span)

    def _decided(
        self, name: str, decide: Decide, conn: Any, span: tuple[datetime, datetime] | None = None
    ) -> builtins.list[datetime]:
        """Decide ticks from the ledger entries of a span, or of the time ahead. Repeating after a lost response does
        not decide twice: if a rejected change was already applied by this call, the ledger has its ticks with the
        decision time chosen here."""
        check_schedule_name(name)
        now = self._commands.now(conn)
        tried: set[datetime] = set()
        for _ in range(TRIES):
            state = self.get(name, conn=conn)
            if span is None:
                records = self._store.run(self._cron.ticks(name, since=now, limit=10_000), conn)
            else:
                records = self._recorded(name, *span, conn)
            if done := sorted(record.tick for record in records if record.decided_at == now and record.tick in tried):
                return done
            change, ticks = self.offload.run(decide, Current(name, state, now, records))
            if not ticks or self._store.run(self._cron.apply_changes([change]), conn)[0]:
                return ticks
            tried |= set(ticks)
        raise contended(name)

    def _recorded(self, name: str, since: datetime, until: datetime, conn: Any) -> builtins.list[TickRecord]:
        """The ledger between two instants, read page by page."""
        records: dict[tuple[str, datetime, datetime | None], TickRecord] = {}
        while True:
            page = self._store.run(self._cron.ticks(name, since=since, until=until, limit=PAGE), conn)
            known = len(records)
            records |= {(record.hash, record.tick, record.until): record for record in page}
            if len(records) > MOST_RECORDS:
                raise InvalidState(
                    f"the ledger has more than {MOST_RECORDS:,} entries of this range",
                    hint="read it, or fill it in, by parts",
                )
            if len(page) < PAGE or len(records) == known:
                return builtins.list(records.values())
            until = page[-1].tick  # inclusive: other configurations may have decided the same tick

    def preview(self, name: str, n: int = 10, *, conn: Any = None) -> builtins.list[Fire]:
        """The next `n` ticks, from the code that plans them."""
        if limits.check_count(n) > MOST_PREVIEWED:
            raise InvalidInput(f"a preview shows at most {MOST_PREVIEWED:,} ticks, not {n:,}")
        state = self.get(name, conn=conn)
        now = self._commands.now(conn)
        fires = self.offload.run(planner.preview, state, now, n)
        if not fires:
            return fires
        ahead = self._store.run(self._cron.ticks(name, since=now, until=fires[-1].tick, limit=10_000), conn)
        return self.offload.run(planner.with_verdicts, state, fires, ahead)

    def explain(self, name: str, tick: datetime, *, conn: Any = None) -> str:
        """The past or expected verdict of a tick, and its reason."""
        at = limits.check_instant(tick, "tick")
        state = self.get(name, conn=conn)
        now = self._commands.now(conn)
        records = self._store.run(self._cron.ticks(name, since=at, until=at), conn)
        return self.offload.run(explain.explain, state, at, now, records)

    def history(
        self,
        name: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> builtins.list[TickRecord]:
        """Decisions about the schedule's ticks, newest first. The ledger outlives the schedule."""
        ticks = self._cron.ticks(
            check_schedule_name(name),
            since=None if since is None else limits.check_instant(since, "since"),
            until=None if until is None else limits.check_instant(until, "until"),
            limit=limits.check_count(limit, "limit"),
        )
        return self._store.run(ticks, conn)

    def _payload_of(self, name: str) -> PayloadOf | None:
        own = self._owned.get(name)
        return None if own is None else own.payload_of
