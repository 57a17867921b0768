"""Schedules: install, list, pause, trigger; and for programs that plan schedules themselves: due schedules, and changes.

A program computes a change from the revision that it read; the change is applied if the schedule is still at that revision.
Any number of programs can therefore plan without a leader, here as on a database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from tarry.core.cron.model import ScheduleChange, ScheduleState, TickRecord
from tarry.core.errors import InvalidInput, UnknownSchedule
from tarry.core.security.api_keys import Action
from tarry.edges.formats import exact
from tarry.edges.http.auth import Caller
from tarry.edges.http.idempotency import IDEMPOTENT, run_idempotent
from tarry.edges.http.queries import Limit, Moment
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, needs, respond
from tarry.wire import schedules as wire
from tarry.wire.base import data_of
from tarry.wire.ids import parse_schedule_id
from tarry.wire.queues import Deleted, ReasonRequest

if TYPE_CHECKING:
    from tarry.edges.http.app import Broker

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=AccessRoute)
_READ = needs(Action.READ, Scope.SCHEDULE)
_LISTED = needs(Action.READ, Scope.LISTED)
_LEDGER = needs(Action.READ, Scope.LEDGER)
_ADMIN = needs(Action.ADMIN, Scope.SCHEDULE)
_ADMIN_IDEMPOTENT = needs(Action.ADMIN, Scope.SCHEDULE, IDEMPOTENT)
_INSTALL = needs(Action.ADMIN, Scope.BODY, responses={201: {"model": wire.Schedule}})
_PLANNING = (Action.READ, Action.PRODUCE)


async def _shown(request: BrokerRequest, states: Sequence[ScheduleState]) -> list[wire.Schedule]:
    """Wire form, built in a thread: computing the next tick of each schedule takes long."""
    now = await request.broker.now()
    return await request.schedules.offload.run(lambda: [wire.Schedule.of(state, now) for state in states])


async def _respond(request: BrokerRequest, state: ScheduleState, status: int = 200) -> Response:
    return respond((await _shown(request, [state]))[0], status)


@router.post("/schedules:due", response_model=wire.Due, **_LISTED)
async def due(request: BrokerRequest, body: Sent[wire.DueRequest]) -> Response:
    """Schedules that are due for planning, among those that this key may read and produce for, and when the next is due."""
    now, caller = await request.broker.now(), request.caller
    if all(caller.allows(action, None) for action in _PLANNING):
        states = await request.run(request.store.cron.due(body.owned, limit=body.limit))
        wake_in = await request.run(request.store.cron.next_wake_in(body.owned))
    else:
        schedules = await request.run(request.store.cron.schedules())
        mine = [state for state in schedules if state.wake_at is not None and _may_plan(state, caller, body.owned)]
        mine.sort(key=attrgetter("wake_at", "name"))
        states = [state for state in mine if state.is_due(now)][: body.limit]
        wake_in = next((state.wake_at - now for state in mine if state.wake_at is not None), None)
    seconds = None if wake_in is None else wake_in / timedelta(seconds=1)
    return respond(wire.Due(schedules=await _shown(request, states), wake_in=seconds))


def _may_plan(state: ScheduleState, caller: Caller, owned: Sequence[str]) -> bool:
    allowed = all(caller.allows(action, state.spec.queue) for action in _PLANNING)
    return allowed and (not state.spec.by_code or state.name in owned)


@router.post("/schedules:plan", response_model=wire.Applied, **needs(Action.PRODUCE, Scope.LISTED, IDEMPOTENT))
async def plan(request: BrokerRequest, body: Sent[wire.PlanRequest]) -> Response:
    """Plan due ticks. The right to produce is enough because no configuration changes."""
    caller, limit = request.caller, request.store.settings.payload_limit
    states = await _states(request.broker, body.changes)
    mine = {name: state for name, state in states.items() if caller.allows(Action.PRODUCE, state.spec.queue)}
    # A schedule outside the key's scope is treated as missing.
    return await _apply(
        request,
        lambda: [change.core(mine.get(change.name), limit, is_plan=True) for change in body.changes],
        together=False,
    )


@router.post("/schedules:apply_changes", response_model=wire.Applied, **needs(Action.ADMIN, Scope.BODY, IDEMPOTENT))
async def apply_changes(request: BrokerRequest, body: Sent[wire.ScheduleChangesRequest]) -> Response:
    """Apply schedule changes in one transaction, each only if its schedule is still at the revision that was read."""
    caller, limit = request.caller, request.store.settings.payload_limit
    for change in body.changes:
        if change.installed is not None:
            caller.require(Action.ADMIN, change.installed.queue)
    states = await _states(request.broker, body.changes)
    for change in body.changes:
        state = states.get(change.name)
        if state is None or caller.allows(Action.ADMIN, state.spec.queue):
            continue
        if change.installed is not None:
            caller.require(Action.ADMIN, state.spec.queue)  # as for PUT: an existing name cannot be hidden
        del states[change.name]
    return await _apply(
        request,
        lambda: [change.core(states.get(change.name), limit) for change in body.changes],
        together=body.together,
    )


async def _states(broker: Broker, changes: Sequence[wire.ScheduleChangeRequest]) -> dict[str, ScheduleState]:
    names = {change.name for change in changes}
    if len(names) < len(changes):
        raise InvalidInput("a request has at most one change per schedule, and one schedule occurs twice")
    states = await broker.store.run(broker.store.cron.schedules(next(iter(names)) if len(names) == 1 else None))
    return {state.name: state for state in states if state.name in names}


async def _apply(
    request: BrokerRequest, make: Callable[[], Sequence[ScheduleChange | None]], *, together: bool
) -> Response:
    """Apply the changes that `make` returns; None stands for a missing schedule and is not applied.

    `make` runs in a thread: thousands of ticks would block the event loop.
    """
    made = await request.schedules.offload.run(lambda: wire.check_size(make()))
    present = [change for change in made if change is not None]

    async def apply(conn: Any) -> list[bool]:
        if not present or (together and len(present) < len(made)):
            return [False] * len(made)
        results = iter(await request.run(request.store.cron.apply_changes(present, together=together), conn=conn))
        return [change is not None and next(results) for change in made]

    def run() -> Awaitable[Response]:
        return run_idempotent(request, apply, lambda applied: wire.Applied(applied=applied))

    queues = {tick.queue for change in present for tick in change.ticks if tick.queue is not None}
    return await request.broker.in_queues(queues, run, request.caller)


@router.get("/schedules", response_model=wire.Schedules, **_LISTED)
async def list_schedules(request: BrokerRequest) -> Response:
    """Schedules whose queue this key may read, by name."""
    states = await request.schedules.list()
    states = [state for state in states if request.caller.allows(Action.READ, state.spec.queue)]
    return respond(wire.Schedules(schedules=await _shown(request, states)))


@router.get("/schedules/{schedule}:preview", response_model=wire.Fires, **_READ)
async def preview(request: BrokerRequest, schedule: str, n: Annotated[int, Query(ge=1, le=100)] = 10) -> Response:
    """The next `n` ticks, computed by the scheduler's own code."""
    return respond(wire.Fires(fires=data_of(await request.schedules.preview(request.schedule.name, n))))


@router.get("/schedules/{schedule}:explain", response_model=wire.Explanation, **_READ)
async def explain(request: BrokerRequest, schedule: str, tick: Moment) -> Response:
    """The verdict of a tick, past or expected, and its reason."""
    explanation = await request.schedules.explain(request.schedule.name, tick)
    return respond(wire.Explanation(tick=exact(tick), explanation=explanation))


@router.get("/schedules/{schedule}:history", response_model=wire.History, **_LEDGER)
async def history(
    request: BrokerRequest, schedule: str, since: Moment | None = None, until: Moment | None = None, limit: Limit = 100
) -> Response:
    """The tick ledger, newest first. A key that may read all queues can also read the ledger of a deleted schedule."""
    name = parse_schedule_id(schedule) or ""
    records = await request.schedules.history(name, since=since, until=until, limit=limit)
    return respond(wire.History(ticks=_visible(request, records)))


@router.get("/schedules/{schedule}:waiting", response_model=wire.History, **_LEDGER)
async def waiting(request: BrokerRequest, schedule: str) -> Response:
    """Ticks whose messages were not delivered yet, of every configuration, oldest first."""
    records = await request.run(request.store.cron.waiting_ticks(parse_schedule_id(schedule) or ""))
    return respond(wire.History(ticks=_visible(request, records)))


def _visible(request: BrokerRequest, records: Sequence[TickRecord]) -> list[TickRecord]:
    """Ledger entries that the caller may read. Entries of an earlier schedule with the same name are left out, and so are
    the messages in a queue that the caller may not read, from which the schedule was moved."""
    caller, state = request.caller, request.scope.get("tarry.schedule")
    ticks: list[TickRecord] = []
    for record in records:
        if state is not None and record.ledger != state.ledger:
            continue
        is_hidden = record.queue is not None and not caller.allows(Action.READ, record.queue)
        ticks.append(replace(record, queue=None, key=None, version=None) if is_hidden else record)
    return data_of(ticks)


@router.get("/schedules/{schedule}", response_model=wire.Schedule, **_READ)
async def show_schedule(request: BrokerRequest, schedule: str) -> Response:
    """Show a schedule. Its `id` is its name, or `~` and base64url for names with characters other than A-Z a-z 0-9 . _ -"""
    return await _respond(request, request.schedule)


@router.put("/schedules/{schedule}", response_model=wire.Schedule, **_INSTALL)
async def put_schedule(request: BrokerRequest, schedule: str, body: Sent[wire.ScheduleRequest]) -> Response:
    """Install or replace a schedule. Nothing of a replaced configuration fires afterwards. 201: it is new."""
    broker, caller, name = request.broker, request.caller, parse_schedule_id(schedule)
    caller.require(Action.ADMIN, body.queue)
    if name is None:
        raise UnknownSchedule(schedule)
    before = await broker.store.run(broker.store.cron.schedules(name))
    if before:
        # Schedule names, like queue names, are shared by all keys: an existing name cannot be hidden.
        caller.require(Action.ADMIN, before[0].spec.queue)
    spec = body.core(name, broker.store.settings.payload_limit)
    state = await broker.in_queues([spec.queue], lambda: broker.app.schedules.put(spec), caller)
    return await _respond(request, state, 200 if before else 201)


@router.delete("/schedules/{schedule}", response_model=Deleted, **_ADMIN)
async def delete_schedule(request: BrokerRequest, schedule: str) -> Response:
    """Delete a schedule and its messages that were not delivered yet."""
    deleted = await request.schedules.delete(request.schedule.name)
    return respond(Deleted(queue=request.schedule.spec.queue, deleted=deleted))


@router.post("/schedules/{schedule}:pause", response_model=wire.Schedule, **_ADMIN)
async def pause_schedule(request: BrokerRequest, schedule: str, body: Sent[ReasonRequest | None] = None) -> Response:
    """Stop firing. Messages of earlier ticks are still delivered."""
    paused = await request.schedules.pause(request.schedule.name, reason=body and body.reason)
    return await _respond(request, paused)


@router.post("/schedules/{schedule}:resume", response_model=wire.Schedule, **_ADMIN)
async def resume_schedule(request: BrokerRequest, schedule: str) -> Response:
    """Continue with the next tick. Ticks during the pause are skipped."""
    return await _respond(request, await request.schedules.resume(request.schedule.name))


@router.post("/schedules/{schedule}:trigger", response_model=wire.Tick, **_ADMIN_IDEMPOTENT)
async def trigger(request: BrokerRequest, schedule: str) -> Response:
    """Fire once now, in addition to the schedule. Returns the tick."""
    return await _tick(request, request.schedules.trigger)


@router.post("/schedules/{schedule}:skip", response_model=wire.Tick, **_ADMIN_IDEMPOTENT)
async def skip(request: BrokerRequest, schedule: str) -> Response:
    """Skip the next tick that would fire. Returns the tick."""
    return await _tick(request, request.schedules.skip)


async def _tick(request: BrokerRequest, decide: Callable[..., Awaitable[datetime]]) -> Response:
    """`decide` is called with the schedule name and a connection."""
    name = request.schedule.name
    return await run_idempotent(request, lambda conn: decide(name, conn=conn), lambda tick: wire.Tick(tick=exact(tick)))


@router.post("/schedules/{schedule}:backfill", response_model=wire.Ticks, **_ADMIN_IDEMPOTENT)
async def backfill(request: BrokerRequest, schedule: str, body: Sent[wire.BackfillRequest]) -> Response:
    """Create messages for ticks in [since, until) that have none. Returns the ticks."""
    fill = request.schedules.missing if body.dry_run else request.schedules.backfill
    return await run_idempotent(
        request,
        lambda conn: fill(request.schedule.name, body.since, body.until, conn=conn),
        lambda ticks: wire.Ticks(ticks=[exact(tick) for tick in ticks]),
    )
