"""What the data pipeline has worked out: minutes of queues, hours of consumers, forecasts, anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from tarry.core.anomalies import Severity
from tarry.core.insights import Asked, InsightPage
from tarry.core.keys import Action
from tarry.edges.http import contracts
from tarry.edges.http import insight_answers as answers
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS, WRITE_ERRORS
from tarry.edges.http.gate import Caller
from tarry.edges.http.ids import storable
from tarry.edges.http.problems import Problem
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of
from tarry.edges.http.views import answer
from tarry.edges.plain import data_of
from tarry.edges.times import exact

router = APIRouter(prefix="/v1", tags=["insights"], route_class=AccessRoute)
_LISTED = access(Action.READ, Scope.LISTED)
_CHANGED = access(Action.ADMIN, Scope.LISTED)
_EPOCH = datetime.min.replace(tzinfo=UTC)

Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
Moment = Annotated[str | None, Query(max_length=40, description="RFC 3339, with its zone.")]
Name = Annotated[contracts.QueueName | None, Query(description="Of this queue; else of all that may be read.")]


class AckRequest(contracts.Strict):
    note: Annotated[str, Field(max_length=1_000)] | None = Field(default=None, description="Why it is all right.")


class MuteRequest(contracts.Strict):
    detector: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Of this detector; else of any."
    )
    queue: contracts.QueueName | None = Field(default=None, description="In this queue; else in any.")
    mute_for: contracts.Duration | None = Field(default=None, description="Else until it is ended.")
    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


async def which(
    request: Request,
    queue: Name = None,
    since: Moment = None,
    until: Moment = None,
    limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100,
    after: Annotated[str | None, Query(max_length=1_000, description="`next` of the page before.")] = None,
) -> Asked:
    def at(text: str | None) -> datetime | None:
        return None if text is None else contracts.instant(text)

    caller = caller_of(request)
    if queue is not None:
        caller.require(Action.READ, queue)
    return Asked(
        queue=queue, patterns=_patterns(caller), since=at(since), until=at(until), after=after, limit=limit
    )  # fmt: skip


Which = Annotated[Asked, Depends(which)]


@router.get("/metrics/minutes", response_model=answers.Minutes, responses=READ_ERRORS, openapi_extra=_LISTED)
async def metric_minutes(request: Request, asked: Which) -> Response:
    """What happened in each queue, minute by minute, the newest first. Without `since`: the last day."""
    page = await request.app.state.broker.store.insights.minutes(await _lately(request, asked, timedelta(days=1)))
    return answer({"minutes": _rows(page.rows), **_about(page), "next": page.next})


@router.get("/metrics/forecasts", response_model=answers.Forecasts, responses=READ_ERRORS, openapi_extra=_LISTED)
async def forecasts(request: Request, queue: Name = None) -> Response:
    """What the next days hold for each queue; who falls behind first comes first."""
    asked = await which(request, queue)
    page = await request.app.state.broker.store.insights.forecasts(asked)
    return answer({"forecasts": _rows(page.rows), **_about(page)})


@router.get("/consumers", response_model=answers.Consumers, responses=READ_ERRORS, openapi_extra=_LISTED)
async def consumers(request: Request, asked: Which) -> Response:
    """What each consumer did, hour by hour, the newest first. Without `since`: the last week."""
    page = await request.app.state.broker.store.insights.hours(await _lately(request, asked, timedelta(days=7)))
    return answer({"consumers": _rows(page.rows), **_about(page), "next": page.next})


@router.get("/anomalies", response_model=answers.Anomalies, responses=READ_ERRORS, openapi_extra=_LISTED)
async def anomalies(
    request: Request,
    asked: Which,
    detector: Annotated[str | None, Query(max_length=100)] = None,
    severity: Severity | None = None,
    acknowledged: bool | None = None,  # noqa: FBT001 - of the query
) -> Response:
    """What the detectors found, the latest first. Without `since`: in the last thirty days."""
    page = await request.app.state.broker.store.insights.anomalies(
        await _lately(request, asked, timedelta(days=30)),
        detector=storable(detector, "detector"),
        severity=severity,
        acknowledged=acknowledged,
    )
    return answer({"anomalies": _rows(page.rows), **_about(page), "next": page.next})


@router.post(
    "/anomalies/{anomaly_id}/ack", response_model=answers.Anomaly, responses=ADMIN_ERRORS, openapi_extra=_CHANGED
)
async def acknowledge(request: Request, anomaly_id: Number, body: AckRequest | None = None) -> Response:
    """Somebody has seen it. It stays, and is not raised again; who said so first is remembered."""
    insights, caller = request.app.state.broker.store.insights, caller_of(request)
    found = await insights.anomaly(anomaly_id)
    # One of a queue that the key is not for is not there.
    if found is None or not caller.allows(Action.ADMIN, found.queue):
        raise Problem(404, "unknown_anomaly", "there is no anomaly of this id", hint="see: GET /v1/anomalies")
    note = storable(None if body is None else body.note, "note")
    name = caller.id if caller.key is None else caller.key.name
    return answer(data_of(await insights.acknowledge(anomaly_id, by=name, note=note) or found))


@router.post(
    "/mutes",
    status_code=201,
    response_model=answers.Mute,
    responses=ADMIN_ERRORS,
    openapi_extra=access(Action.ADMIN, Scope.BODY),
)
async def mute(request: Request, body: MuteRequest) -> Response:
    """Raise nothing of this detector, of this queue, or of both, from the next run on."""
    caller_of(request).require(Action.ADMIN, body.queue)
    if body.detector is None and body.queue is None:
        raise Problem(422, "invalid", "say what to mute: a detector, a queue or both")
    broker = request.app.state.broker
    until = None if body.mute_for is None else await broker.store.now() + body.mute_for
    made = await broker.store.insights.mute(
        detector=storable(body.detector, "detector"),
        queue=body.queue,
        until=until,
        reason=storable(body.reason, "reason") or "",
    )
    return answer(data_of(made), 201)


@router.get("/mutes", response_model=answers.Mutes, responses=READ_ERRORS, openapi_extra=_LISTED)
async def mutes(request: Request) -> Response:
    """What is muted now, the latest first: for the queues of this key, and for all queues."""
    caller = caller_of(request)
    found = await request.app.state.broker.store.insights.mutes()
    return answer(
        {"mutes": _rows([one for one in found if one.queue is None or caller.allows(Action.READ, one.queue)])}
    )


@router.delete("/mutes/{mute_id}", response_model=answers.Unmuted, responses=WRITE_ERRORS, openapi_extra=_CHANGED)
async def unmute(request: Request, mute_id: Number) -> Response:
    """End a mute. The next run raises again what it finds."""
    insights, caller = request.app.state.broker.store.insights, caller_of(request)
    found = next((one for one in await insights.mutes() if one.id == mute_id), None)
    if found is None or not caller.allows(Action.ADMIN, found.queue) or not await insights.unmute(mute_id):
        raise Problem(404, "unknown_mute", "there is no mute of this id", hint="see: GET /v1/mutes")
    return answer({"id": mute_id, "unmuted": True})


def _patterns(caller: Caller) -> Sequence[str] | None:
    return None if caller.key is None else caller.key.queues


async def _lately(request: Request, asked: Asked, default: timedelta) -> Asked:
    if asked.since is not None:
        return asked
    latest = asked.until or await request.app.state.broker.store.now()
    return replace(asked, since=latest - min(default, latest - _EPOCH))


def _rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [data_of(row) for row in rows]


def _about(page: InsightPage[Any]) -> dict[str, Any]:
    run = page.run
    if run is None:
        return {"run": None}
    return {"run": {"id": run.id, "started_at": exact(run.started_at), "ended_at": exact(run.ended_at)}}
