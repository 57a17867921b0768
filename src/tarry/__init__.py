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
_NAMES = {
    "tarry.api._sync.delivery": ("Delivery",),
    "tarry.api._sync.queue": ("Queue",),
    "tarry.api.delivery": ("AsyncDelivery",),
    "tarry.api.queue": ("AsyncQueue",),
    "tarry.app": ("App", "AsyncApp", "connect", "connect_async"),
    "tarry.core.errors": ("TarryError",),
    "tarry.core.journal.events": ("JournalLevel",),
    "tarry.core.messages.handler_results": ("Bury", "Release", "Snooze"),
    "tarry.core.messages.model": ("Conflict", "Message"),
    "tarry.core.messages.outcomes": ("Outcome", "Settled"),
    "tarry.core.messages.retry": ("Retry",),
    "tarry.core.rates": ("Rate",),
    "tarry.core.settings": ("QueueSettings",),
    "tarry.services.worker.results": ("Handled",),
    "tarry.services.worker.worker": ("Worker", "WorkerSettings"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker must still reject misspelled names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'tarry' has no attribute {name!r}")
        from importlib import import_module

        # Cached: `tarry.Message` may be used in a loop.
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
