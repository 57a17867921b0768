"""For programs that plan schedules themselves: what is due, and rulings about it. Each is worked out by the program and
holds if nothing has changed since it was read; so any number of them need no leader, here as on a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tarry.core.cron import Ruling, ScheduleState
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.keys import Action
from tarry.edges.http import ruling_shapes
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS, WRITE_ERRORS
from tarry.edges.http.gate import Caller
from tarry.edges.http.once import ONCE, once
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of
from tarry.edges.http.schedule_shapes import shown
from tarry.edges.http.views import answer

if TYPE_CHECKING:
    from tarry.edges.http.broker import Broker

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=AccessRoute)
_PLANNING = (Action.READ, Action.PRODUCE)


@router.post(
    "/schedules:due",
    response_model=ruling_shapes.Due,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED),
)
async def due(request: Request, body: ruling_shapes.DueRequest) -> Response:
    """Schedules that need a scheduler now, of those that this key may read and produce for, and when the next will."""
    broker: Broker = request.app.state.broker
    now, caller = await broker.store.now(), caller_of(request)
    if all(caller.allows(action, None) for action in _PLANNING):
        found = await broker.store.due_schedules(body.owned, limit=body.limit)
        wake_in = await broker.store.next_wake_in(body.owned)
    else:
        mine = [one for one in await broker.store.schedules() if _may_plan(one, caller, body.owned)]
        waiting = [(one.wake_at, one.prefix, one) for one in mine if one.wake_at is not None and one.is_due(now)]
        found = [one for *_, one in sorted(waiting, key=lambda row: row[:2])[: body.limit]]
        wake_in = min((one.wake_at - now for one in mine if one.wake_at is not None), default=None)
    seconds = None if wake_in is None else wake_in / timedelta(seconds=1)
    states = await broker.app.schedules.aside.run(lambda: [shown(one, now) for one in found])
    return answer({"schedules": states, "wake_in": seconds})


def _may_plan(state: ScheduleState, caller: Caller, owned: Sequence[str]) -> bool:
    allowed = all(caller.allows(action, state.spec.queue) for action in _PLANNING)
    return allowed and (not state.spec.by_code or state.prefix in owned)


@router.post(
    "/schedules:plan",
    response_model=ruling_shapes.Held,
    responses=WRITE_ERRORS,
    openapi_extra={**access(Action.PRODUCE, Scope.LISTED), **ONCE},
)
async def plan(request: Request, body: ruling_shapes.PlanRequest) -> Response:
    """Make messages of ticks that are due to be planned. It changes no configuration, so whoever may produce may plan."""
    broker: Broker = request.app.state.broker
    caller, limit = caller_of(request), broker.store.settings.payload_limit
    states = await _states(broker, body.rulings)
    mine = {prefix: state for prefix, state in states.items() if caller.allows(Action.PRODUCE, state.spec.queue)}
    # What is foreign is answered like what is not there any more.
    return await _ruled(
        request,
        lambda: [one.ruling(mine[one.prefix], limit) if one.prefix in mine else None for one in body.rulings],
        together=False,
    )


@router.post(
    "/schedules:rule",
    response_model=ruling_shapes.Held,
    responses=ADMIN_ERRORS,
    openapi_extra={**access(Action.ADMIN, Scope.BODY), **ONCE},
)
async def rule(request: Request, body: ruling_shapes.RuleRequest) -> Response:
    """Change schedules, each as of the revision that was read, in one transaction."""
    broker: Broker = request.app.state.broker
    caller, limit = caller_of(request), broker.store.settings.payload_limit
    for one in body.rulings:
        if one.after is not None and one.after.schedule is not None:
            caller.require(Action.ADMIN, one.after.schedule.queue)
    states = await _states(broker, body.rulings)
    for one in body.rulings:
        state = states.get(one.prefix)
        if state is None or caller.allows(Action.ADMIN, state.spec.queue):
            continue
        if one.after is not None and one.after.schedule is not None:
            caller.require(Action.ADMIN, state.spec.queue)  # as for PUT: that a prefix is taken cannot be kept secret
        del states[one.prefix]
    return await _ruled(
        request,
        lambda: [one.ruling(states.get(one.prefix), limit) for one in body.rulings],
        together=body.together,
    )


async def _states(broker: Broker, rulings: Sequence[ruling_shapes.Planned]) -> dict[str, ScheduleState]:
    prefixes = {one.prefix for one in rulings}
    if len(prefixes) < len(rulings):
        raise InvalidInput("each ruling is about another schedule: one is there twice")
    found = await broker.store.schedules(next(iter(prefixes)) if len(prefixes) == 1 else None)
    return {state.prefix: state for state in found if state.prefix in prefixes}


async def _ruled(request: Request, make: Callable[[], Sequence[Ruling | None]], *, together: bool) -> Response:
    """None among what is made: a ruling about a schedule that is not there does not hold. Thousands of ticks are made beside
    the event loop."""
    broker: Broker = request.app.state.broker
    made = await broker.app.schedules.aside.run(lambda: ruling_shapes.checked_size(make()))
    standing = [one for one in made if one is not None]

    async def apply(conn: Any) -> Response:
        if not standing or (together and len(standing) < len(made)):
            return answer({"held": [False] * len(made)})
        told = iter(await broker.store.rule(standing, together=together, conn=conn))
        return answer({"held": [one is not None and next(told) for one in made]})

    queues = {tick.queue for one in standing for tick in one.ticks if tick.queue is not None}
    caller = caller_of(request)
    try:
        return await once(request, apply)
    except UnknownQueue:
        if not all(broker.may_create(queue, caller) for queue in queues):
            raise
    for queue in sorted(queues):
        await broker.create_queue(queue, caller)
    return await once(request, apply)
