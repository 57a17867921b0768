"""Liveness, readiness, metrics and the clock. The first two need no key."""

from fastapi import APIRouter
from starlette.responses import Response

from tarry.core.errors import TarryError
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import Action
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, needs, respond
from tarry.services.shared_result import SharedResult
from tarry.wire import base as wire

CACHED_FOR_S = 1.0


def readiness(store: AsyncStore) -> SharedResult[bool]:
    """Whether the database responds. No key is needed, so requests share one statement and its result for a second."""

    async def check() -> bool:
        try:
            await store.run(store.queues.now())
        except TarryError:
            return False
        return True

    return SharedResult(check, CACHED_FOR_S)


class Health(wire.Response):
    status: str


class PrometheusText(Response):
    media_type = "text/plain; version=0.0.4; charset=utf-8"


router = APIRouter(tags=["health"], route_class=AccessRoute)


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """The process responds."""
    return respond(Health(status="ok"))


@router.get("/readyz", response_model=Health, responses={503: {"model": Health}})
async def readyz(request: BrokerRequest) -> Response:
    """The database responds, and the broker is not about to stop."""
    if request.broker.stopping.is_set():
        return respond(Health(status="stopping"), 503)
    if not await request.broker.is_ready():
        return respond(Health(status="the database cannot be used"), 503)
    return respond(Health(status="ok"))


@router.get("/metrics", response_class=PrometheusText, **needs(Action.READ, Scope.LISTED))
async def metrics(request: BrokerRequest) -> Response:
    """Prometheus metrics: of the broker, and messages by state of the queues that this key may read."""
    readable = await request.broker.queues_of(request.caller)
    return PrometheusText(await request.broker.meter.text(request.broker, [info.name for info in readable]))


@router.get("/v1/now", response_model=wire.Now, **needs(Action.READ, Scope.LISTED))
async def now(request: BrokerRequest) -> Response:
    """The database clock, which decides when messages are due."""
    return respond(wire.Now(now=wire.data_of(await request.broker.now())))
