"""The kit for tests of programs that use Tarry."""

from tarry.testing.apps import async_memory_app, memory_app
from tarry.testing.clock import MutableClock
from tarry.testing.workers import drain, drain_async

__all__ = ["MutableClock", "async_memory_app", "drain", "drain_async", "memory_app"]
