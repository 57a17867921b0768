"""The in-memory store, and the classic blocking delay queue with its wait strategies."""

from tarry.delayqueue.delay_queue import DelayQueue
from tarry.delayqueue.strategies import BusyWait, Strategy, TimingWheel, WaitNotify, WaitNotifyScan
from tarry.storage.memory.store import AsyncMemoryStore, MemoryStore

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
