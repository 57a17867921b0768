"""The broker as an ASGI application: on its own, or mounted into another one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import TypeVar

from fastapi import FastAPI

from tarry.api.drafts import Drafter
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.core.errors import InvalidState, UnknownQueue
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.edges.http import openapi, problems
from tarry.edges.http.audit_refusals import Refusals
from tarry.edges.http.auth import Authenticator, Caller
from tarry.edges.http.lean_routes import HotRoutes
from tarry.edges.http.metrics import Meter
from tarry.edges.http.middleware import RequestMiddleware
from tarry.edges.http.relay import activity, browse, edit
from tarry.edges.http.relay import messages as relay
from tarry.edges.http.routes import (
    analytics,
    dead_letters,
    events,
    health,
    keys,
    leases,
    messages,
    queues,
    schedules,
    transfer,
)
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.http.sse import V1
from tarry.edges.http.uvicorn_shutdown import ServerMonitor
from tarry.services.live_events.hub import EventHub
from tarry.wire.payload import CONTENT, Content

R = TypeVar("R")

_DEFAULTS = BrokerSettings()
_DESCRIPTION = "A delayed queue on PostgreSQL: it keeps messages until they are due, and hands each one over safely."


PARTS = (queues, messages, leases, dead_letters, schedules, transfer, events, analytics, keys, health)
"""Modules with a router each: the routes of /v1."""
RELAY = (relay, activity, edit, browse)
"""Modules with Relay's routes, in an order in which no path hides another."""


class Broker:
    """Shared state of all routes."""

    def __init__(self, app: AsyncApp, settings: BrokerSettings) -> None:
        self.app = app
        self.settings = settings
        self.authenticator = Authenticator(app.store, settings)
        self.refusals = Refusals(app.store, self.authenticator.has_seen)
        self.is_ready = health.readiness(app.store)
        self.drafter = Drafter(CONTENT, app.store.settings.payload_limit)
        self.meter = Meter()
        self.live = EventHub(
            app.store,
            format=V1,
            buffer=settings.stream_buffer,
            most=settings.replay_limit,
            check_every=settings.keys_cached_for,
        )
        self._creating = asyncio.Lock()
        self._full_until_s: dict[str, float] = {}
        self.stopping = asyncio.Event()
        """Set when the process is about to stop: polls and streams return immediately."""
        self.server_monitor = ServerMonitor(on_stop=self.stop)

    def stop(self) -> None:
        self.stopping.set()
        self.live.stop()

    @property
    def store(self) -> AsyncStore:
        return self.app.store

    async def now(self) -> datetime:
        """The time of the database."""
        return await self.store.run(self.store.queues.now())

    async def queues_of(self, caller: Caller, action: Action = Action.READ) -> list[QueueInfo]:
        """The queues on which the caller has this right, by name."""
        return [info for info in await self.app.queues.list() if caller.allows(action, info.name)]

    def queue(self, name: str, consumer: str | None = None) -> AsyncQueue[Content]:
        return AsyncQueue(self.app.store, name, CONTENT, consumer=consumer)

    async def in_queues(
        self,
        names: Collection[str],
        do: Callable[[], Awaitable[R]],
        caller: Caller | None,
        settings: QueueSettings | None = None,
    ) -> R:
        """Run `do`. If it raises UnknownQueue, create the missing queues and run it again.

        `caller` None: every key may create them. `settings` replace the broker's defaults.
        """
        try:
            return await do()
        except UnknownQueue:
            if not all(self._may_create(name, caller) for name in names):
                raise
        for name in sorted(names):
            await self._create_queue(name, caller, settings or self.settings.queue_defaults or QueueSettings())
        return await do()

    def _may_create(self, name: str, caller: Caller | None) -> bool:
        """A key that may only consume or read creates no queues."""
        if self.settings.queue_defaults is None:
            return False
        return caller is None or caller.allows(Action.PRODUCE, name) or caller.allows(Action.ADMIN, name)

    async def _create_queue(self, name: str, caller: Caller | None, settings: QueueSettings) -> None:
        """Create a queue. A key without `admin` on the queue creates a limited number."""
        if caller is None or caller.allows(Action.ADMIN, name):
            await self.app.queues.create(name, settings, exist_ok=True)
            return
        async with self._creating:  # otherwise concurrent requests could each be within the quota
            await self._check_quota(caller, name)
            await self.app.queues.create(name, settings, exist_ok=True)

    async def _check_quota(self, caller: Caller, name: str) -> None:
        """Count the queues that the key may produce to, which needs no record of the key that created each queue.

        A queue that a concurrent request has just created is within the quota.
        """
        most, now_s = self.settings.queues_per_key, time.monotonic()
        if self._full_until_s.get(caller.id, 0.0) <= now_s:
            names = [info.name for info in await self.app.queues.list()]
            if name in names or sum(caller.allows(Action.PRODUCE, existing) for existing in names) < most:
                return
            self._full_until_s[caller.id] = now_s + self.settings.keys_cached_for.total_seconds()
        raise InvalidState(
            f"this key may produce to {most:,} queues or more, so it cannot create another",
            hint="create the queue with a key that has the action admin: POST /v1/queues",
        )


def broker_app(app: AsyncApp, settings: BrokerSettings = _DEFAULTS) -> FastAPI:
    """An ASGI application on an open `AsyncApp`, which the caller closes.

    Mounted (`outer.mount("/tarry", broker_app(app))`), it serves that path with its own keys.
    """
    api = FastAPI(
        title="Tarry",
        version="1",
        description=_DESCRIPTION,
        openapi_url=None,  # FastAPI's route builds and serializes the document on the event loop
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would contain the client's Host header, and plain HTTP behind TLS
    )
    api.state.broker = broker = Broker(app, settings)
    problems.install(api)
    api.add_middleware(HotRoutes, routes=(*messages.HOT, *leases.HOT))
    api.add_middleware(RequestMiddleware, settings=settings, on_response=broker.meter.count)
    for part in (*PARTS, openapi, *RELAY):
        # Routes do not depend on the application; `include_router` would build each of them again.
        api.router.routes.extend(part.router.routes)
    document = api.openapi
    api.openapi = lambda: openapi.complete(document())
    api.state.description = openapi.description(api)
    return api
