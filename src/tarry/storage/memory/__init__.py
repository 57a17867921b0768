"""The in-memory store, and the classic blocking delay queue with its wait strategies."""

from tarry.storage.memory.aio import AsyncMemoryStore
from tarry.storage.memory.delay_queue import DelayQueue
from tarry.storage.memory.store import MemoryStore
from tarry.storage.memory.strategies import BusyWait, Strategy, TimingWheel, WaitNotify, WaitNotifyScan

__all__ = [
    "AsyncMemoryStore",
    "BusyWait",
    "DelayQueue",
    "MemoryStore",
    "Strategy",
    "TimingWheel",
    "WaitNotify",
    "WaitNotifyScan",
]
