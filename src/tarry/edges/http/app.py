"""The broker as an ASGI application: on its own, or mounted into another one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.errors import Refused, UnknownQueue
from tarry.core.keys import Action
from tarry.core.ports import AsyncStore
from tarry.core.settings import QueueSettings
from tarry.edges.http import (
    dead,
    edits,
    events,
    health,
    insights,
    keys,
    leases,
    messages,
    page,
    problems,
    queues,
    redrives,
    relay,
    relay_activity,
    relay_looking,
    relay_moving,
    relay_queues,
    rulings,
    schedules,
    sessions,
    transfer,
)
from tarry.edges.http.answers import ProblemAnswer
from tarry.edges.http.examples import EXAMPLES
from tarry.edges.http.gate import Caller, Gate
from tarry.edges.http.guard import Guard
from tarry.edges.http.hosting import Host
from tarry.edges.http.metering import Meter
from tarry.edges.http.refusals import Refusals
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.http.streaming import PLAIN
from tarry.handles.aio import AsyncQueue
from tarry.handles.content import CONTENT, Content
from tarry.handles.drafting import Drafter
from tarry.services.live import Live

R = TypeVar("R")

_DEFAULTS = BrokerSettings()
_DESCRIPTION = "A delayed queue on PostgreSQL: it keeps messages until they are due, and hands each one over safely."


PARTS = (
    queues, messages, edits, leases, dead, redrives, rulings, schedules, transfer, events, sessions, insights, keys, health,
)  # fmt: skip
"""Each with a router: what the broker can be asked."""
RELAY = (relay, relay_activity, relay_moving, relay_looking, relay_queues)
"""What Relay can be asked, in an order in which no path hides another."""


class Broker:
    """What every route needs."""

    def __init__(self, app: AsyncApp, settings: BrokerSettings) -> None:
        self.app = app
        self.settings = settings
        self.gate = Gate(app.store, settings)
        self.refusals = Refusals(app.store, self.gate.has_seen)
        self.is_ready = health.Readiness(app.store)
        self.drafter = Drafter(CONTENT, app.store.settings.payload_limit)
        self.meter = Meter()
        self.live = Live(
            app.store,
            form=PLAIN,
            buffer=settings.stream_buffer,
            most=settings.replay_limit,
            check_every=settings.keys_cached_for,
        )
        self._creating = asyncio.Lock()
        self._full_until_s: dict[str, float] = {}
        self.stopping = asyncio.Event()
        """Set when the process is about to end: polls and streams are answered at once."""
        self.host = Host(on_stop=self.stop)

    def stop(self) -> None:
        self.stopping.set()
        self.live.stop()

    @property
    def store(self) -> AsyncStore:
        return self.app.store

    def queue(self, name: str, consumer: str | None = None) -> AsyncQueue[Content]:
        return AsyncQueue(self.app.store, name, CONTENT, consumer=consumer)

    async def in_queue(self, name: str, do: Callable[[], Awaitable[R]], caller: Caller | None) -> R:
        """Do it, and if the queue is unknown, create that and do it again. `caller` None: any may create this queue."""
        try:
            return await do()
        except UnknownQueue:
            if not self.may_create(name, caller):
                raise
        await self.create_queue(name, caller)
        return await do()

    def may_create(self, name: str, caller: Caller | None) -> bool:
        """A key that may only consume or read creates no queues."""
        if self.settings.queue_defaults is None:
            return False
        return caller is None or caller.allows(Action.PRODUCE, name) or caller.allows(Action.ADMIN, name)

    async def create_queue(self, name: str, caller: Caller | None) -> None:
        """With the settings of the broker. A key without the right to administer the queue creates a limited number."""
        settings = self.settings.queue_defaults or QueueSettings.for_http()
        if caller is None or caller.allows(Action.ADMIN, name):
            await self.app.queues.create(name, settings, exist_ok=True)
            return
        async with self._creating:  # or requests that come together would each find room for one
            await self._check_quota(caller, name)
            await self.app.queues.create(name, settings, exist_ok=True)

    async def _check_quota(self, caller: Caller, name: str) -> None:
        """By the queues that its key is for: needs no record of which key created which queue. A queue that another request
        has created meanwhile is within it."""
        most, now_s = self.settings.queues_per_key, time.monotonic()
        if self._full_until_s.get(caller.id, 0.0) <= now_s:
            names = [info.name for info in await self.app.queues.list()]
            if name in names or sum(caller.allows(Action.PRODUCE, one) for one in names) < most:
                return
            self._full_until_s[caller.id] = now_s + self.settings.keys_cached_for.total_seconds()
        raise Refused(
            f"this key is for {most:,} queues or more, so it creates no other",
            hint="create the queue with a key that may admin: POST /v1/queues",
        )


def broker_app(app: AsyncApp, settings: BrokerSettings = _DEFAULTS) -> FastAPI:
    """An ASGI application on an open `AsyncApp`, which stays the caller's to close.

    Mounted (`outer.mount("/tarry", broker_app(app))`) it answers below that path, with its own keys.
    """
    made = FastAPI(
        title="Tarry",
        version="1",
        description=_DESCRIPTION,
        openapi_url=None,  # the route of FastAPI makes and serialises the document on the event loop
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client wrote, and plain HTTP behind TLS
    )
    made.state.broker = broker = Broker(app, settings)
    problems.install(made)
    made.add_middleware(Guard, settings=settings, heard=broker.meter.answered)
    for part in (*PARTS, page, *RELAY):
        # The routes themselves, which know nothing of an application: to include a router would work each out anew.
        made.router.routes.extend(part.router.routes)
    document = made.openapi

    def openapi() -> dict[str, Any]:
        said = document()
        schemas = said["components"]["schemas"]
        schemas.setdefault("ProblemAnswer", ProblemAnswer.model_json_schema())
        for name in EXAMPLES.keys() & schemas.keys():
            schemas[name]["examples"] = [EXAMPLES[name]]
        said["components"].setdefault("securitySchemes", {"key": {"type": "http", "scheme": "bearer"}})
        said["security"] = [{"key": []}]
        return said

    made.openapi = openapi
    made.state.description = page.Description(made)
    return made
