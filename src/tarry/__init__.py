"""Tarry keeps messages until they are due, and hands each one over safely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.app import App, AsyncApp, connect, connect_async
    from tarry.core.answers import Bury, Release, Snooze
    from tarry.core.errors import TarryError
    from tarry.core.messages import Conflict, Message
    from tarry.core.outcomes import Outcome, Settled
    from tarry.core.rates import Rate
    from tarry.core.retry import Retry
    from tarry.core.settings import QueueSettings
    from tarry.handles.aio import AsyncQueue
    from tarry.handles.delivery import AsyncDelivery, Delivery
    from tarry.handles.queue import Queue
    from tarry.services.worker import Worker

__all__ = [
    "App",
    "AsyncApp",
    "AsyncDelivery",
    "AsyncQueue",
    "Bury",
    "Conflict",
    "Delivery",
    "Message",
    "Outcome",
    "Queue",
    "QueueSettings",
    "Rate",
    "Release",
    "Retry",
    "Settled",
    "Snooze",
    "TarryError",
    "Worker",
    "connect",
    "connect_async",
]

# Loaded when first asked for: the command line must answer -h before a database driver has been imported.
_MODULES = {
    "App": "tarry.app",
    "AsyncApp": "tarry.app",
    "AsyncDelivery": "tarry.handles.delivery",
    "AsyncQueue": "tarry.handles.aio",
    "Bury": "tarry.core.answers",
    "Conflict": "tarry.core.messages",
    "Delivery": "tarry.handles.delivery",
    "Message": "tarry.core.messages",
    "Outcome": "tarry.core.outcomes",
    "Queue": "tarry.handles.queue",
    "QueueSettings": "tarry.core.settings",
    "Rate": "tarry.core.rates",
    "Release": "tarry.core.answers",
    "Retry": "tarry.core.retry",
    "Settled": "tarry.core.outcomes",
    "Snooze": "tarry.core.answers",
    "TarryError": "tarry.core.errors",
    "Worker": "tarry.services.worker",
    "connect": "tarry.app",
    "connect_async": "tarry.app",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tarry' has no attribute {name!r}")
    from importlib import import_module

    # Kept, so that it is looked up once: `tarry.Message` may stand in a loop.
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
