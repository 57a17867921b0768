"""The store in this process's memory, and the classic blocking delay queue."""

from tarry.storage.memory.aio import AsyncMemoryStore
from tarry.storage.memory.delay_queue import DelayQueue
from tarry.storage.memory.store import MemoryStore

__all__ = ["AsyncMemoryStore", "DelayQueue", "MemoryStore"]
