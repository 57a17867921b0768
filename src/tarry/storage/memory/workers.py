"""`WorkersRole` in memory."""

import builtins
from dataclasses import replace

from tarry.core.workers.model import KEPT_FOR, RunningWorker, WorkerReport
from tarry.storage.memory.state import MemoryRole, MemoryState, locked


class MemoryWorkers(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._workers: dict[str, RunningWorker] = {}

    @locked
    def report(self, worker: WorkerReport) -> bool:
        now, before = self._now, self._workers.get(worker.id)
        started_at, drain_at = (now, None) if before is None else (before.started_at, before.drain_at)
        current = RunningWorker.of(worker, started_at=started_at, seen_at=now, drain_at=drain_at)
        self._workers[worker.id] = current
        self._workers = {other.id: other for other in self._current()}
        return drain_at is not None

    @locked
    def leave(self, id: str) -> None:
        self._workers.pop(id, None)

    @locked
    def list(self) -> builtins.list[RunningWorker]:
        return sorted(self._current(), key=lambda worker: (worker.consumer, worker.id))

    @locked
    def drain(self, consumer: str) -> int:
        named = [worker for worker in self._current() if worker.consumer == consumer]
        for worker in named:
            self._workers[worker.id] = replace(worker, drain_at=worker.drain_at or self._now)
        return len(named)

    def _current(self) -> builtins.list[RunningWorker]:
        return [worker for worker in self._workers.values() if worker.seen_at >= self._now - KEPT_FOR]
