"""Tarry in memory, for the tests of programs that use it: the same verbs, no database, and a clock that you move."""

from __future__ import annotations

from datetime import timedelta

from tarry.app import App, AsyncApp
from tarry.core.clock import Clock
from tarry.core.settings import StoreSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.testing.clock import MutableClock

_SETTINGS = StoreSettings(scan_every=timedelta(milliseconds=5))


def memory_app(clock: Clock | None = None, *, settings: StoreSettings = _SETTINGS) -> App:
    """An `App` on a store of its own. With a `MutableClock`, `clock.advance(…)` is how time passes."""
    return App(_store(clock, settings), consumer="test")


def async_memory_app(clock: Clock | None = None, *, settings: StoreSettings = _SETTINGS) -> AsyncApp:
    """`memory_app` for code that awaits."""
    store = _store(clock, settings)
    return AsyncApp(AsyncMemoryStore(store), consumer="test", blocking=lambda: store)


def _store(clock: Clock | None, settings: StoreSettings) -> MemoryStore:
    return MemoryStore(clock=clock or MutableClock(), settings=settings)
