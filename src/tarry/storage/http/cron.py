"""Requests about schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.cron.model import ScheduleChange, ScheduleState, TickRecord, check_schedule_name
from tarry.core.durations import exact
from tarry.storage.http.call import Call, HttpOperation, Op, fetch, fetch_unless, new_key, operation
from tarry.storage.http.queues import in_queues
from tarry.wire import schedules as wire
from tarry.wire.ids import schedule_id

_PAGE = 1_000
_US = timedelta(microseconds=1)


class HttpCron:
    def __init__(self, *, create: bool) -> None:
        """`create`: a change creates the queues of its messages if they are missing."""
        self._create = create

    @operation
    def schedules(self, name: str | None = None) -> Op[list[ScheduleState]]:
        if name is None:
            page = yield from fetch(wire.Schedules, Call("GET", "/v1/schedules"))
            return [schedule.core() for schedule in page.schedules]
        schedule = yield from fetch_unless("unknown_schedule", wire.Schedule, _schedule_call(name))
        return [] if schedule is None else [schedule.core()]

    @operation
    def due(self, owned: Sequence[str], *, limit: int = 1000) -> Op[list[ScheduleState]]:
        return [schedule.core() for schedule in (yield from _due(owned, limit)).schedules]

    @operation
    def next_wake_in(self, owned: Sequence[str]) -> Op[timedelta | None]:
        wake_s = (yield from _due(owned, 0)).wake_in
        return None if wake_s is None else timedelta(seconds=wake_s)

    def apply_changes(self, changes: Sequence[ScheduleChange], *, together: bool = True) -> HttpOperation[list[bool]]:
        queues = sorted({tick.queue for change in changes for tick in change.ticks if tick.queue is not None})
        return HttpOperation(
            lambda: in_queues(queues, lambda: _apply(changes, queues, together=together), create=self._create)
        )

    @operation
    def ticks(
        self, name: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> Op[list[TickRecord]]:
        records: list[TickRecord] = []
        while (missing := min(limit - len(records), _PAGE)) > 0:
            params = {"limit": missing, "since": exact(since), "until": exact(until)}
            page = yield from _ledger(_schedule_call(name, ":history", params))
            records += page
            if len(page) < missing:
                break
            # If more configurations decided about one instant than fit on the rest of a page, the rest is left out.
            until = page[-1].tick - _US
        return records

    @operation
    def waiting_ticks(self, name: str) -> Op[list[TickRecord]]:
        return _ledger(_schedule_call(name, ":waiting"))

    @operation
    def forget_ticks(self, before: datetime) -> Op[int]:
        """Does nothing: a process with access to the database prunes the ledger."""
        return 0
        yield  # makes it a generator


def _due(owned: Sequence[str], limit: int) -> Op[wire.Due]:
    return fetch(wire.Due, Call("POST", "/v1/schedules:due", wire.DueRequest([*owned], max(0, min(limit, 10_000)))))


def _apply(changes: Sequence[ScheduleChange], queues: Sequence[str], *, together: bool) -> Op[list[bool]]:
    """Planning needs the right to produce. Any other change needs admin, and is audited."""
    if not changes:
        return []
    requests = [wire.ScheduleChangeRequest.of(change) for change in changes]
    if not together and all(change.moves_only and not change.withdraw for change in changes):
        verb, body = "plan", wire.PlanRequest(requests)
    else:
        verb, body = "apply_changes", wire.ScheduleChangesRequest(requests, together)
    queue = queues[0] if queues else ""
    call = Call("POST", f"/v1/schedules:{verb}", body, queue=queue, key=new_key())
    return (yield from fetch(wire.Applied, call)).applied


def _ledger(call: Call) -> Op[list[TickRecord]]:
    history = yield from fetch_unless("unknown_schedule", wire.History, call)
    return [] if history is None else history.ticks


def _schedule_call(name: str, path: str = "", params: dict[str, Any] | None = None) -> Call:
    return Call("GET", f"/v1/schedules/{schedule_id(check_schedule_name(name))}{path}", params=params)
