"""Dead letters: list, count, redrive, discard; and redrive jobs: progress, pause, resume, cancel, advance."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from tarry.core import limits
from tarry.core.dead_letters.redrive import DeadFilter, DeadPosition, Matching, RedriveJob, RedriveState
from tarry.core.messages.model import MessagePosition
from tarry.core.security.api_keys import Action
from tarry.edges.http.idempotency import IDEMPOTENT, run_idempotent
from tarry.edges.http.pages import bounded, dead_letters, paced
from tarry.edges.http.queries import After, CountTo, Limit, Moment
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, needs, respond
from tarry.wire import dead_letters as wire
from tarry.wire.base import MOST, data_of
from tarry.wire.ids import parse_position, position_text, storable
from tarry.wire.openapi import value_model
from tarry.wire.queues import ReasonRequest

router = APIRouter(prefix="/v1", tags=["dead letters"], route_class=AccessRoute)
redrives = APIRouter(prefix="/v1", tags=["redrives"], route_class=AccessRoute)
_READ = needs(Action.READ)
_REDRIVE = value_model(RedriveJob, "Redrive")
_ADMIN_IDEMPOTENT = needs(Action.ADMIN, extra=IDEMPOTENT)
Job = Annotated[int, Path(ge=1, le=2**63 - 1)]
Text = Annotated[str | None, Query(max_length=200)]


def which(
    fingerprint: Text = None,
    type: Text = None,
    key_prefix: Text = None,
    died_from: Moment | None = None,
    died_to: Moment | None = None,
    version: Annotated[list[int] | None, Query(max_length=MOST)] = None,
) -> DeadFilter:
    """A filter of dead letters; absent fields do not restrict."""
    return DeadFilter.of(
        {
            "fingerprint": storable(fingerprint, "fingerprint"),
            "type": storable(type, "type"),
            "key_prefix": storable(key_prefix, "key_prefix"),
            "died_from": died_from,
            "died_to": died_to,
            "versions": version,
        }
    )


Which = Annotated[DeadFilter, Depends(which)]


@router.get("/queues/{queue}/dead", response_model=wire.DeadLetters, **_READ)
async def list_dead(
    request: BrokerRequest,
    queue: str,
    where: Which,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    after: After = None,
) -> Response:
    """Dead letters, newest first. A page ends early when its payloads reach 8 MiB."""
    letters, last = await bounded(
        *dead_letters(request.store, queue, where),
        start=None if after is None else DeadPosition(*parse_position(after)),
        limit=limit,
        most_bytes=request.broker.settings.page_bytes,
    )
    next_page = None if last is None else position_text(MessagePosition(*last))
    return respond(wire.DeadLetters(dead_letters=await paced(wire.DeadLetter.of, letters), next=next_page))


@router.get("/queues/{queue}/dead:groups", response_model=wire.DeadGroups, **_READ)
async def dead_groups(
    request: BrokerRequest, queue: str, limit: Limit = 100, count_to: Annotated[int, Query(ge=1, le=1_000_000)] = 10_000
) -> Response:
    """Dead letters grouped by error, most recent group first. Other requests select a group by its `fingerprint`."""
    groups = await request.run(request.store.dead_letters.groups(queue, limit=limit, cap=count_to))
    return respond(wire.DeadGroups(groups=data_of(groups)))


@router.get("/queues/{queue}/dead:count", response_model=value_model(Matching, "Matching"), **_READ)
async def count_dead(request: BrokerRequest, queue: str, where: Which, count_to: CountTo = 10_000) -> Response:
    """How many dead letters match, and how many of them a redrive would skip because their key is live."""
    matching = await request.run(request.store.dead_letters.count(queue, where=where, limit=count_to))
    return respond(data_of(matching))


@router.post("/queues/{queue}/dead:redrive", response_model=wire.Redriven, **_ADMIN_IDEMPOTENT)
async def redrive(request: BrokerRequest, queue: str, body: Sent[wire.RedriveRequest | None] = None) -> Response:
    """Redrive the given versions, or the oldest, in one call, from the first attempt. One whose key is live stays dead."""
    options = body or wire.RedriveRequest()
    operation = request.store.dead_letters.redrive(queue, versions=options.versions, limit=options.limit)
    return await run_idempotent(request, partial(request.run, operation), lambda moved: wire.Redriven(redriven=moved))


@router.post("/queues/{queue}/dead:start_redrive", status_code=202, response_model=_REDRIVE, **_ADMIN_IDEMPOTENT)
async def start_redrive(
    request: BrokerRequest, queue: str, body: Sent[wire.StartRedriveRequest | None] = None
) -> Response:
    """Start a redrive job, which a sweeper advances: at a given rate, canaries first. See /v1/redrives/{job}."""
    options = body or wire.StartRedriveRequest()
    started_by = limits.check_consumer(options.started_by) or request.caller.id
    if options.target is not None:
        request.caller.require(Action.PRODUCE, options.target)
    operation = request.store.dead_letters.start_redrive(queue, options.core(started_by))
    return await run_idempotent(request, partial(request.run, operation), data_of, status=202)


@router.delete("/queues/{queue}/dead", response_model=wire.Discarded, **needs(Action.ADMIN))
async def discard_dead(request: BrokerRequest, queue: str, where: Which) -> Response:
    """Discard the dead letters that the query selects, or all of the queue. This cannot be undone."""
    discarded = await request.run(request.store.dead_letters.discard(queue, where=where))
    return respond(wire.Discarded(discarded=discarded))


@redrives.get("/redrives", response_model=wire.Redrives, **needs(Action.READ, Scope.LISTED))
async def list_redrives(
    request: BrokerRequest, queue: Annotated[str | None, Query(max_length=100)] = None, limit: Limit = 100
) -> Response:
    """Redrive jobs of the queues that this key may read, newest first."""
    caller, name, store = request.caller, storable(queue, "queue"), request.store
    if name is not None:
        caller.require(Action.READ, name)
    jobs = await store.run(store.dead_letters.redrive_jobs(name, limit=limit))
    readable = [job for job in jobs if caller.allows(Action.READ, job.queue)]
    return respond(wire.Redrives(redrives=data_of(readable)))


@redrives.get("/redrives/{job}", response_model=_REDRIVE, **needs(Action.READ, Scope.REDRIVE))
async def show_redrive(request: BrokerRequest, job: Job) -> Response:
    """A redrive job and its progress."""
    return respond(data_of(request.scope["tarry.redrive"]))


def _post(verb: str, **responses: Any) -> Callable[..., Any]:
    options = needs(Action.ADMIN, Scope.REDRIVE, responses=responses)
    return redrives.post(f"/redrives/{{job}}/{verb}", name=f"{verb}_redrive", response_model=_REDRIVE, **options)


def _add_route(verb: str, state: RedriveState, description: str) -> None:
    async def turn(request: BrokerRequest, job: Job, body: Sent[ReasonRequest | None] = None) -> Response:
        reason = None if body is None or body.reason is None else limits.clip_error(body.reason)
        store = request.store
        return respond(data_of(await store.run(store.dead_letters.turn_redrive(job, state, reason=reason))))

    turn.__doc__ = description
    _post(verb)(turn)


_add_route("pause", RedriveState.PAUSED, "Pause the job. A repeated request changes nothing.")
_add_route(
    "resume", RedriveState.RUNNING, "Resume the job, including one that stopped because its canaries died again."
)
_add_route("cancel", RedriveState.CANCELLED, "Cancel the job. Redriven messages stay live, the others stay dead.")


@_post("advance", **{"204": {"description": "No step is due"}})
async def advance(request: BrokerRequest, job: Job) -> Response:
    """Run one step of the job, if one is due: for installations without a sweeper."""
    advanced = await request.run(request.store.dead_letters.advance_redrive(job))
    return Response(status_code=204) if advanced is None else respond(data_of(advanced))


router.routes.extend(redrives.routes)
