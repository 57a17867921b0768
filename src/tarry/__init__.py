"""A delayed queue on PostgreSQL: stores messages until they are due, and leases each to one consumer at a time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.api._sync.delivery import Delivery
    from tarry.api._sync.queue import Queue
    from tarry.api.delivery import AsyncDelivery
    from tarry.api.queue import AsyncQueue
    from tarry.app import App, AsyncApp, connect, connect_async
    from tarry.core.errors import TarryError
    from tarry.core.journal.events import JournalLevel
    from tarry.core.messages.handler_results import Bury, Release, Snooze
    from tarry.core.messages.model import Conflict, Message
    from tarry.core.messages.outcomes import Outcome, Settled
    from tarry.core.messages.retry import Retry
    from tarry.core.rates import Rate
    from tarry.core.settings import QueueSettings
    from tarry.services.worker.results import Handled
    from tarry.services.worker.worker import Worker, WorkerSettings

__all__ = [
    "App",
    "AsyncApp",
    "AsyncDelivery",
    "AsyncQueue",
    "Bury",
    "Conflict",
    "Delivery",
    "Handled",
    "JournalLevel",
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
    "WorkerSettings",
    "connect",
    "connect_async",
]

# Imported on first use: `tarry -h` must not import a database driver.
_MODULES = {
    "App": "tarry.app",
    "AsyncApp": "tarry.app",
    "AsyncDelivery": "tarry.api.delivery",
    "AsyncQueue": "tarry.api.queue",
    "Bury": "tarry.core.messages.handler_results",
    "Conflict": "tarry.core.messages.model",
    "Delivery": "tarry.api._sync.delivery",
    "Handled": "tarry.services.worker.results",
    "JournalLevel": "tarry.core.journal.events",
    "Message": "tarry.core.messages.model",
    "Outcome": "tarry.core.messages.outcomes",
    "Queue": "tarry.api._sync.queue",
    "QueueSettings": "tarry.core.settings",
    "Rate": "tarry.core.rates",
    "Release": "tarry.core.messages.handler_results",
    "Retry": "tarry.core.messages.retry",
    "Settled": "tarry.core.messages.outcomes",
    "Snooze": "tarry.core.messages.handler_results",
    "TarryError": "tarry.core.errors",
    "Worker": "tarry.services.worker.worker",
    "WorkerSettings": "tarry.services.worker.worker",
    "connect": "tarry.app",
    "connect_async": "tarry.app",
}


if not TYPE_CHECKING:  # else a misspelled name would have a type

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'tarry' has no attribute {name!r}")
        from importlib import import_module

        # Cached: `tarry.Message` may be used in a loop.
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
