"""Schedules: install, look, pause, run by hand. What they decide is `tarry.cron`'s business; a scheduler plans them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.cron import ScheduleState, TickRecord
from tarry.core.errors import UnknownSchedule
from tarry.core.keys import Action
from tarry.edges.http import contracts, schedule_shapes
from tarry.edges.http.answers import Deleted
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS
from tarry.edges.http.ids import parse_prefix
from tarry.edges.http.once import ONCE, once
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of, schedule_of
from tarry.edges.http.schedule_shapes import shown, shown_fire, shown_tick, without_message
from tarry.edges.http.views import answer
from tarry.edges.times import exact
from tarry.handles.schedules import AsyncSchedules

if TYPE_CHECKING:
    from tarry.edges.http.broker import Broker

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=AccessRoute)
_READ: dict[str, Any] = {"responses": READ_ERRORS, "openapi_extra": access(Action.READ, Scope.SCHEDULE)}
_LEDGER: dict[str, Any] = {"responses": READ_ERRORS, "openapi_extra": access(Action.READ, Scope.LEDGER)}
_ADMIN: dict[str, Any] = {"responses": ADMIN_ERRORS, "openapi_extra": access(Action.ADMIN, Scope.SCHEDULE)}
_ADMIN_ONCE: dict[str, Any] = {
    "responses": ADMIN_ERRORS,
    "openapi_extra": {**access(Action.ADMIN, Scope.SCHEDULE), **ONCE},
}
Moment = Annotated[str, Query(max_length=40, description="RFC 3339, with its zone.")]


async def _shown(request: Request, states: Sequence[ScheduleState]) -> list[dict[str, Any]]:
    """Beside the event loop: the next tick of each has to be found."""
    broker: Broker = request.app.state.broker
    now = await broker.store.now()
    return await broker.app.schedules.aside.run(lambda: [shown(state, now) for state in states])


async def _shown_one(request: Request, state: ScheduleState) -> dict[str, Any]:
    return (await _shown(request, [state]))[0]


def _of(request: Request) -> tuple[AsyncSchedules, str]:
    return request.app.state.broker.app.schedules, schedule_of(request).prefix


@router.get(
    "/schedules",
    response_model=schedule_shapes.SchedulesAnswer,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED),
)
async def list_schedules(request: Request) -> Response:
    """All whose queue this key may read, by prefix."""
    broker, caller = request.app.state.broker, caller_of(request)
    states = [one for one in await broker.app.schedules.list() if caller.allows(Action.READ, one.spec.queue)]
    return answer({"schedules": await _shown(request, states)})


@router.get("/schedules/{schedule}:preview", response_model=schedule_shapes.Fires, **_READ)
async def preview(request: Request, schedule: str, n: Annotated[int, Query(ge=1, le=100)] = 10) -> Response:
    """The next `n` ticks, from the code that plans them."""
    schedules, prefix = _of(request)
    return answer({"fires": [shown_fire(fire) for fire in await schedules.preview(prefix, n)]})


@router.get("/schedules/{schedule}:explain", response_model=schedule_shapes.Explanation, **_READ)
async def explain(request: Request, schedule: str, tick: Moment) -> Response:
    """Which verdict a tick got and why, or will get."""
    schedules, prefix = _of(request)
    at = contracts.instant(tick)
    return answer({"tick": exact(at), "explanation": await schedules.explain(prefix, at)})


@router.get("/schedules/{schedule}:history", response_model=schedule_shapes.History, **_LEDGER)
async def history(
    request: Request,
    schedule: str,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100,
) -> Response:
    """What was decided about its ticks, the newest first. Who may read all queues sees that of one that is gone."""
    span = {
        "since": None if since is None else contracts.instant(since),
        "until": None if until is None else contracts.instant(until),
    }
    schedules: AsyncSchedules = request.app.state.broker.app.schedules
    found = await schedules.history(parse_prefix(schedule) or "", **span, limit=limit)
    return answer({"ticks": _visible(request, found)})


@router.get("/schedules/{schedule}:waiting", response_model=schedule_shapes.History, **_LEDGER)
async def waiting(request: Request, schedule: str) -> Response:
    """The ticks whose messages nobody was given yet, of whatever configuration, the oldest first."""
    found = await request.app.state.broker.store.waiting_ticks(parse_prefix(schedule) or "")
    return answer({"ticks": _visible(request, found)})


def _visible(request: Request, records: Sequence[TickRecord]) -> list[dict[str, Any]]:
    """Entries of the installation that the caller was let in for: its prefix may have another owner by now. Of a schedule
    that was moved from a queue that the caller may not read, its messages there are left out."""
    caller, state = caller_of(request), request.scope.get("tarry.schedule")
    own = [one for one in records if state is None or one.ledger == state.ledger]
    return [
        shown_tick(one if one.queue is None or caller.allows(Action.READ, one.queue) else without_message(one))
        for one in own
    ]


@router.get("/schedules/{schedule}", response_model=schedule_shapes.ScheduleAnswer, **_READ)
async def show_schedule(request: Request, schedule: str) -> Response:
    """One schedule. Its `id` is its prefix, or, of one with other characters than A-Z a-z 0-9 . _ -, `~` and base64url."""
    return answer(await _shown_one(request, schedule_of(request)))


@router.put(
    "/schedules/{schedule}",
    response_model=schedule_shapes.ScheduleAnswer,
    responses={201: {"model": schedule_shapes.ScheduleAnswer}, **ADMIN_ERRORS},
    openapi_extra=access(Action.ADMIN, Scope.BODY),
)
async def put_schedule(request: Request, schedule: str, body: schedule_shapes.ScheduleRequest) -> Response:
    """Install it, or another configuration of it: from then on nothing of the old one fires. 201: there was none."""
    broker, caller, prefix = request.app.state.broker, caller_of(request), parse_prefix(schedule)
    caller.require(Action.ADMIN, body.queue)
    if prefix is None:
        raise UnknownSchedule(schedule)
    before = await broker.store.schedules(prefix)
    if before:
        # Prefixes are common property, like names of queues: that this one is taken cannot be kept from who wants it.
        caller.require(Action.ADMIN, before[0].spec.queue)
    spec = body.spec(prefix, broker.store.settings.payload_limit)
    state = await broker.in_queue(spec.queue, lambda: broker.app.schedules.put(spec), caller)
    return answer(await _shown_one(request, state), 200 if before else 201)


@router.delete("/schedules/{schedule}", response_model=Deleted, **_ADMIN)
async def delete_schedule(request: Request, schedule: str) -> Response:
    """Remove it, and what nobody was given yet of it."""
    schedules, prefix = _of(request)
    deleted = await schedules.delete(prefix)
    return answer({"queue": schedule_of(request).spec.queue, "deleted": deleted})


@router.post("/schedules/{schedule}:pause", response_model=schedule_shapes.ScheduleAnswer, **_ADMIN)
async def pause_schedule(request: Request, schedule: str, body: contracts.ReasonRequest | None = None) -> Response:
    """From now on it does not fire. What fired before is still delivered."""
    schedules, prefix = _of(request)
    state = await schedules.pause(prefix, reason=None if body is None else body.reason)
    return answer(await _shown_one(request, state))


@router.post("/schedules/{schedule}:resume", response_model=schedule_shapes.ScheduleAnswer, **_ADMIN)
async def resume_schedule(request: Request, schedule: str) -> Response:
    """Go on with the next tick; those of the pause are skipped."""
    schedules, prefix = _of(request)
    return answer(await _shown_one(request, await schedules.resume(prefix)))


@router.post("/schedules/{schedule}:trigger", response_model=schedule_shapes.Tick, **_ADMIN_ONCE)
async def trigger(request: Request, schedule: str) -> Response:
    """One run now, beside the schedule. The tick of that run."""
    schedules, prefix = _of(request)

    async def run_now(conn: Any) -> Response:
        return answer({"tick": exact(await schedules.trigger(prefix, conn=conn))})

    return await once(request, run_now)


@router.post("/schedules/{schedule}:skip", response_model=schedule_shapes.Tick, **_ADMIN_ONCE)
async def skip(request: Request, schedule: str) -> Response:
    """Leave out the next tick that is to fire. Which one that is."""
    schedules, prefix = _of(request)

    async def skip_one(conn: Any) -> Response:
        return answer({"tick": exact(await schedules.skip_next(prefix, conn=conn))})

    return await once(request, skip_one)


@router.post("/schedules/{schedule}:backfill", response_model=schedule_shapes.Ticks, **_ADMIN_ONCE)
async def backfill(request: Request, schedule: str, body: schedule_shapes.BackfillRequest) -> Response:
    """Make the messages of the ticks in [since, until) that made none. Which ticks they are."""
    schedules, prefix = _of(request)
    fill = schedules.missing if body.dry_run else schedules.backfill

    async def filled_in(conn: Any) -> Response:
        return answer({"ticks": [exact(tick) for tick in await fill(prefix, body.since, body.until, conn=conn)]})

    return await once(request, filled_in)
