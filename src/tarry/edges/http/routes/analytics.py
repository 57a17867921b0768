"""Pipeline results: queue metrics per minute, consumer metrics per hour, forecasts, anomalies."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from tarry.core.analytics.anomalies import Anomaly, Mute, Severity
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.security.api_keys import Action
from tarry.edges.http.problems import Problem
from tarry.edges.http.queries import Limit, Moment, QueueName
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, needs, respond
from tarry.wire import analytics as wire
from tarry.wire.base import data_of
from tarry.wire.ids import storable
from tarry.wire.openapi import value_model

router = APIRouter(prefix="/v1", tags=["analytics"], route_class=AccessRoute)
_LISTED = needs(Action.READ, Scope.LISTED)
_EPOCH = datetime.min.replace(tzinfo=UTC)

Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
Name = Annotated[QueueName | None, Query(description="Only this queue; by default all that the key may read.")]


async def which(
    request: BrokerRequest,
    queue: Name = None,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Limit = 100,
    after: Annotated[str | None, Query(max_length=1_000, description="`next` of the page before.")] = None,
) -> AnalyticsQuery:
    return analytics_query(request, queue, since=since, until=until, after=after, limit=limit)


def analytics_query(request: BrokerRequest, queue: str | None, **options: Any) -> AnalyticsQuery:
    """A query for this queue, or for all queues that the caller may read."""
    if queue is not None:
        request.caller.require(Action.READ, queue)
    patterns = None if request.caller.key is None else request.caller.key.queues
    return AnalyticsQuery(queue=queue, patterns=patterns, **options)


Which = Annotated[AnalyticsQuery, Depends(which)]


@router.get("/metrics/minutes", response_model=wire.Minutes, **_LISTED)
async def metric_minutes(request: BrokerRequest, query: Which) -> Response:
    """Metrics of each queue per minute, newest first. Without `since`: the last day."""
    query = await _since_default(request, query, timedelta(days=1))
    page = await request.run(request.store.analytics.minutes(query))
    return respond(wire.Minutes.of(page, minutes=page.rows))


@router.get("/metrics/forecasts", response_model=wire.Forecasts, **_LISTED)
async def forecasts(request: BrokerRequest, queue: Name = None) -> Response:
    """The forecast of each queue for the next days, ordered by when the queue falls behind."""
    page = await request.run(request.store.analytics.forecasts(analytics_query(request, queue)))
    return respond(wire.Forecasts.of(page, forecasts=page.rows))


@router.get("/consumers", response_model=wire.Consumers, **_LISTED)
async def consumers(request: BrokerRequest, query: Which) -> Response:
    """Metrics of each consumer per hour, newest first. Without `since`: the last week."""
    query = await _since_default(request, query, timedelta(days=7))
    page = await request.run(request.store.analytics.hours(query))
    return respond(wire.Consumers.of(page, consumers=page.rows))


@router.get("/anomalies", response_model=wire.Anomalies, **_LISTED)
async def anomalies(
    request: BrokerRequest,
    query: Which,
    detector: Annotated[str | None, Query(max_length=100)] = None,
    severity: Severity | None = None,
    acknowledged: bool | None = None,  # noqa: FBT001 - of the query
) -> Response:
    """Anomalies, newest first. Without `since`: the last thirty days."""
    query, named = await _since_default(request, query, timedelta(days=30)), storable(detector, "detector")
    anomalies = request.store.analytics.anomalies(query, detector=named, severity=severity, acknowledged=acknowledged)
    page = await request.run(anomalies)
    return respond(wire.Anomalies.of(page, anomalies=page.rows))


@router.post(
    "/anomalies/{anomaly_id}/ack", response_model=value_model(Anomaly, "Anomaly"), **needs(Action.ADMIN, Scope.LISTED)
)
async def acknowledge(
    request: BrokerRequest, anomaly_id: Number, body: Sent[wire.AckRequest | None] = None
) -> Response:
    """Mark an anomaly as seen. It stays in the list and is not raised again. The first acknowledgement is kept."""
    analytics, caller = request.store.analytics, request.caller
    anomaly = await request.run(analytics.anomaly(anomaly_id))
    # An anomaly of a queue outside the key's scope is treated as missing.
    if anomaly is None or not caller.allows(Action.ADMIN, anomaly.queue):
        raise Problem(404, "unknown_anomaly", "there is no anomaly with this id", hint="see: GET /v1/anomalies")
    given, name = body or wire.AckRequest(), caller.id if caller.key is None else caller.key.name
    note, is_false = storable(given.note, "note"), given.is_false_positive
    acknowledged = await request.run(analytics.acknowledge(anomaly_id, by=name, note=note, is_false_positive=is_false))
    return respond(data_of(acknowledged or anomaly))


@router.post("/mutes", status_code=201, response_model=value_model(Mute, "Mute"), **needs(Action.ADMIN, Scope.BODY))
async def mute(request: BrokerRequest, body: Sent[wire.MuteRequest]) -> Response:
    """Suppress anomalies of a detector, of a queue, or of a detector on a queue, from the next run on."""
    request.caller.require(Action.ADMIN, body.queue)
    if body.detector is None and body.queue is None:
        raise Problem(422, "invalid", "give a detector, a queue or both")
    until = None if body.mute_for is None else await request.broker.now() + body.mute_for
    detector, reason = storable(body.detector, "detector"), storable(body.reason, "reason") or ""
    mute = request.store.analytics.mute(detector=detector, queue=body.queue, until=until, reason=reason)
    return respond(data_of(await request.run(mute)), 201)


@router.get("/mutes", response_model=wire.Mutes, **_LISTED)
async def mutes(request: BrokerRequest) -> Response:
    """Active mutes, newest first: for the queues that this key may read, and for all queues."""
    rows = await request.run(request.store.analytics.mutes())
    visible = [mute for mute in rows if mute.queue is None or request.caller.allows(Action.READ, mute.queue)]
    return respond(wire.Mutes(mutes=data_of(visible)))


@router.delete("/mutes/{mute_id}", response_model=wire.Unmuted, **needs(Action.ADMIN, Scope.LISTED, conflicts=False))
async def unmute(request: BrokerRequest, mute_id: Number) -> Response:
    """Remove a mute. The next run raises anomalies again."""
    analytics, caller = request.store.analytics, request.caller
    muted = next((row for row in await request.run(analytics.mutes()) if row.id == mute_id), None)
    is_allowed = muted is not None and caller.allows(Action.ADMIN, muted.queue)
    if not is_allowed or not await request.run(analytics.unmute(mute_id)):
        raise Problem(404, "unknown_mute", "there is no mute with this id", hint="see: GET /v1/mutes")
    return respond(wire.Unmuted(id=mute_id, unmuted=True))


async def _since_default(request: BrokerRequest, query: AnalyticsQuery, default: timedelta) -> AnalyticsQuery:
    if query.since is not None:
        return query
    latest = query.until or await request.broker.now()
    return replace(query, since=latest - min(default, latest - _EPOCH))
