"""Dead letters: look, count, deliver again, give up."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from tarry.core import limits
from tarry.core.keys import Action
from tarry.core.messages import DeadLetter, Place
from tarry.core.redriving import DeadFilter, DeadPlace
from tarry.edges.http import answers, contracts, dead_shapes, views
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS
from tarry.edges.http.ids import PLACE, parse_place, show_place, storable
from tarry.edges.http.once import ONCE, once
from tarry.edges.http.pacing import paced
from tarry.edges.http.pages import bounded
from tarry.edges.http.routing import AccessRoute, access, caller_of
from tarry.edges.http.views import answer

Text = Annotated[str | None, Query(max_length=200)]
Moment = Annotated[str | None, Query(max_length=40, description="RFC 3339, with its zone.")]


def which(
    fingerprint: Text = None,
    type: Text = None,
    key_prefix: Text = None,
    died_from: Moment = None,
    died_to: Moment = None,
    version: Annotated[list[int] | None, Query(max_length=contracts.MOST)] = None,
) -> DeadFilter:
    """Which dead letters are meant; what is not said does not matter."""

    def at(text: str | None) -> datetime | None:
        return None if text is None else contracts.instant(text)

    return DeadFilter.of(
        {
            "fingerprint": storable(fingerprint, "fingerprint"),
            "type": storable(type, "type"),
            "key_prefix": storable(key_prefix, "key_prefix"),
            "died_from": at(died_from),
            "died_to": at(died_to),
            "versions": version,
        }
    )


Which = Annotated[DeadFilter, Depends(which)]

router = APIRouter(prefix="/v1", tags=["dead letters"], route_class=AccessRoute)


@router.get(
    "/queues/{queue}/dead",
    response_model=answers.DeadLetters,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ),
)
async def list_dead(
    request: Request,
    queue: str,
    where: Which,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    after: Annotated[str | None, Query(pattern=PLACE, description="`next` of the page before.")] = None,
) -> Response:
    """The newest first. A page ends early when its payloads reach 8 MiB."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)

    def read(behind: DeadPlace | None, n: int) -> Awaitable[list[DeadLetter[bytes]]]:
        return broker.store.dead_letters(queue, where=where, limit=n, before=behind)

    found, last = await bounded(
        read,
        lambda one: DeadPlace(one.died_at, one.version),
        start=None if after is None else DeadPlace(*parse_place(after)),
        limit=limit,
        most_bytes=broker.settings.page_bytes,
    )
    following = None if last is None else show_place(Place(*last))
    return answer({"dead_letters": await paced(views.dead_letter, found), "next": following})


@router.get(
    "/queues/{queue}/dead:groups",
    response_model=dead_shapes.DeadGroups,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ),
)
async def dead_groups(
    request: Request,
    queue: str,
    limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100,
    count_to: Annotated[int, Query(ge=1, le=1_000_000)] = 10_000,
) -> Response:
    """By what they died of, the freshest group first; `fingerprint` names a group wherever dead letters are chosen."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    found = await broker.store.dead_groups(queue, limit=limit, cap=count_to)
    return answer({"groups": [views.dead_group(one) for one in found]})


@router.get(
    "/queues/{queue}/dead:count",
    response_model=dead_shapes.Matching,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ),
)
async def count_dead(
    request: Request, queue: str, where: Which, count_to: Annotated[int, Query(ge=0, le=1_000_000)] = 10_000
) -> Response:
    """How many a redrive of these would take, and how many of them could not live. Changes nothing."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    found = await broker.store.count_dead(queue, where=where, limit=count_to)
    return answer({"letters": views.counted(found.letters), "blocked": found.blocked})


@router.post(
    "/queues/{queue}/dead:redrive",
    status_code=202,
    response_model=dead_shapes.Redrive,
    responses=ADMIN_ERRORS,
    openapi_extra=access(Action.ADMIN) | ONCE,
)
async def redrive(request: Request, queue: str, body: dead_shapes.RedriveRequest | None = None) -> Response:
    """Deliver them again as a job, which a sweeper carries on: at a rate, canaries first. See /v1/redrives/{job}."""
    broker, asked = request.app.state.broker, body or dead_shapes.RedriveRequest()
    await broker.app.queues.get(queue)

    async def start(conn: Any) -> Response:
        job = await broker.store.start_redrive(
            queue,
            where=asked.where(),
            rate=asked.rate,
            canary=asked.canary,
            who=limits.check_consumer(asked.who) or caller_of(request).id,
            request=asked.request or uuid4(),
            conn=conn,
        )
        return answer(views.redrive(job), 202)

    return await once(request, start)


@router.post(
    "/queues/{queue}/dead:redrive_now",
    response_model=dead_shapes.Redriven,
    responses=ADMIN_ERRORS,
    openapi_extra=access(Action.ADMIN) | ONCE,
)
async def redrive_now(request: Request, queue: str, body: dead_shapes.RedriveNowRequest | None = None) -> Response:
    """Deliver a few again at once, from the first attempt: those named, or the oldest. One whose key is live stays dead."""
    broker, asked = request.app.state.broker, body or dead_shapes.RedriveNowRequest()
    await broker.app.queues.get(queue)

    async def redrive_some(conn: Any) -> Response:
        moved = await broker.store.redrive(queue, versions=asked.versions, limit=asked.limit, conn=conn)
        return answer({"redriven": moved})

    return await once(request, redrive_some)


@router.delete(
    "/queues/{queue}/dead", response_model=answers.Purged, responses=ADMIN_ERRORS, openapi_extra=access(Action.ADMIN)
)
async def purge_dead(request: Request, queue: str, where: Which) -> Response:
    """Give up dead letters: those of the query, or all of the queue. It cannot be undone."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    return answer({"purged": await broker.store.purge_dead(queue, where=where)})
