"""The broker as an ASGI application: on its own, or mounted into another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.errors import UnknownQueue
from tarry.core.ports import AsyncStore
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
from tarry.edges.http.gate import Gate
from tarry.edges.http.guard import Guard
from tarry.edges.http.hosting import Host
from tarry.edges.http.metering import Meter
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
        self.drafter = Drafter(CONTENT, app.store.settings.payload_limit)
        self.meter = Meter()
        self.live = Live(
            app.store,
            form=PLAIN,
            buffer=settings.stream_buffer,
            most=settings.replay_limit,
            check_every=settings.keys_cached_for,
        )
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

    async def in_queue(self, name: str, do: Callable[[], Awaitable[R]]) -> R:
        """Where a queue comes into being: at the first offer or poll, so that neither has to wait for an administrator."""
        try:
            return await do()
        except UnknownQueue:
            if self.settings.queue_defaults is None:
                raise
        await self.app.queues.create(name, self.settings.queue_defaults, exist_ok=True)
        return await do()


def broker_app(app: AsyncApp, settings: BrokerSettings = _DEFAULTS) -> FastAPI:
    """An ASGI application on an open `AsyncApp`, which stays the caller's to close.

    Mounted (`outer.mount("/tarry", broker_app(app))`) it answers below that path, with its own keys.
    """
    made = FastAPI(
        title="Tarry",
        version="1",
        description=_DESCRIPTION,
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
    return made
