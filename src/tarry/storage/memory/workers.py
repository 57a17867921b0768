"""`WorkersRole` in memory."""

import builtins
from dataclasses import replace
from datetime import datetime

from tarry.core.workers.model import KEPT_FOR, RELEASES_KEPT_FOR, RunningWorker, WorkerRelease, WorkerReport
from tarry.storage.memory.state import MemoryRole, MemoryState, locked


class MemoryWorkers(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._workers: dict[str, RunningWorker] = {}
        self._releases: dict[tuple[str, str], WorkerRelease] = {}

    @locked
    def report(self, worker: WorkerReport) -> bool:
        now, before = self._now, self._workers.get(worker.id)
        started_at, drain_at = (now, None) if before is None else (before.started_at, before.drain_at)
        current = RunningWorker.of(worker, started_at=started_at, seen_at=now, drain_at=drain_at)
        self._workers[worker.id] = current
        self._workers = {other.id: other for other in self._current()}
        if worker.release is not None:
            noted = WorkerRelease(consumer=worker.consumer, release=worker.release, first_at=now, last_at=now)
            known = self._releases.setdefault((worker.consumer, worker.release), noted)
            self._releases[worker.consumer, worker.release] = replace(known, last_at=now)
            self._releases = {at: row for at, row in self._releases.items() if row.last_at >= now - RELEASES_KEPT_FOR}
        return drain_at is not None

    @locked
    def leave(self, id: str) -> None:
        self._workers.pop(id, None)

    @locked
    def list(self) -> builtins.list[RunningWorker]:
        return sorted(self._current(), key=lambda worker: (worker.consumer, worker.id))

    @locked
    def releases(self, since: datetime) -> builtins.list[WorkerRelease]:
        rows = [row for row in self._releases.values() if row.last_at >= since]
        return sorted(rows, key=lambda row: (row.last_at, row.consumer), reverse=True)

    @locked
    def drain(self, consumer: str) -> int:
        named = [worker for worker in self._current() if worker.consumer == consumer]
        for worker in named:
            self._workers[worker.id] = replace(worker, drain_at=worker.drain_at or self._now)
        return len(named)

    def _current(self) -> builtins.list[RunningWorker]:
        return [worker for worker in self._workers.values() if worker.seen_at >= self._now - KEPT_FOR]
