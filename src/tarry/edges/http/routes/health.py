"""Whether the broker lives, whether it can work, and what time it thinks it is. The first two are open to everybody."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from tarry.core.errors import TarryError
from tarry.core.keys import Action
from tarry.core.ports import AsyncStore
from tarry.edges.http import answers
from tarry.edges.http.documented import READ_ERRORS
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of
from tarry.edges.http.views import answer
from tarry.edges.times import exact

CACHED_FOR_S = 1.0


class Readiness:
    """Whether the database answers. Anyone may ask, so requests share one statement, and its result for a second."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._ready = False
        self._until_s = 0.0
        self._check: asyncio.Task[bool] | None = None

    async def __call__(self) -> bool:
        if time.monotonic() < self._until_s:
            return self._ready
        if self._check is None:
            self._check = asyncio.create_task(self._ask(), name="tarry-ready")
        return await asyncio.shield(self._check)

    async def _ask(self) -> bool:
        try:
            await self._store.now()
            self._ready = True
        except TarryError:
            self._ready = False
        finally:
            self._check = None
        self._until_s = time.monotonic() + CACHED_FOR_S
        return self._ready


class PrometheusText(Response):
    media_type = "text/plain; version=0.0.4; charset=utf-8"


router = APIRouter(tags=["health"], route_class=AccessRoute)


@router.get("/healthz", response_model=answers.Health)
async def healthz() -> Response:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/readyz", response_model=answers.Health, responses={503: {"model": answers.Health}})
async def readyz(request: Request) -> Response:
    """The database answers, and the broker is not about to stop."""
    broker = request.app.state.broker
    if broker.stopping.is_set():
        return answer({"status": "stopping"}, 503)
    if not await broker.is_ready():
        return answer({"status": "the database cannot be used"}, 503)
    return answer({"status": "ok"})


@router.get(
    "/metrics",
    response_class=PrometheusText,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED),
)
async def metrics(request: Request) -> Response:
    """For Prometheus: the broker's own figures, and messages by state of the queues that this key may read."""
    broker, caller = request.app.state.broker, caller_of(request)
    queues = [info.name for info in await broker.app.queues.list() if caller.allows(Action.READ, info.name)]
    return PrometheusText(await broker.meter.text(broker, queues))


@router.get(
    "/v1/now", response_model=answers.Now, responses=READ_ERRORS, openapi_extra=access(Action.READ, Scope.LISTED)
)
async def now(request: Request) -> Response:
    """The database's clock, by which everything is due."""
    return answer({"now": exact(await request.app.state.broker.store.now())})
