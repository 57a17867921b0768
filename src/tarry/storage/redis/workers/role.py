"""`WorkersRole` on Redis: two hashes of the registry."""

from __future__ import annotations

import builtins

import msgspec

from tarry.core.workers.model import KEPT_FOR, RunningWorker, WorkerReport
from tarry.storage.redis.operation import Op, RedisRole, duration, instant, operation


class RedisWorkers(RedisRole):
    @operation
    def report(self, worker: WorkerReport) -> Op[bool]:
        about = {"id": worker.id, "consumer": worker.consumer, "report": msgspec.json.encode(worker).decode()}
        return bool((yield from self._registry("workers/report", **about, kept_for=duration(KEPT_FOR))))

    @operation
    def leave(self, id: str) -> Op[None]:
        yield from self._registry("workers/leave", id=id)

    @operation
    def list(self) -> Op[builtins.list[RunningWorker]]:
        now, rows = yield from self._registry("workers/list")
        workers = [_worker(*row) for row in rows]
        current = [worker for worker in workers if worker.seen_at >= instant(now) - KEPT_FOR]
        return sorted(current, key=lambda worker: (worker.consumer, worker.id))

    @operation
    def drain(self, consumer: str) -> Op[int]:
        return (yield from self._registry("workers/drain", consumer=consumer, kept_for=duration(KEPT_FOR)))


def _worker(started: bytes, seen: bytes, text: bytes, drain: bytes) -> RunningWorker:
    started_at, seen_at = instant(int(started)), instant(int(seen))
    drain_at = instant(int(drain)) if drain else None
    return RunningWorker.of(_report(text), started_at=started_at, seen_at=seen_at, drain_at=drain_at)


_report = msgspec.json.Decoder(WorkerReport).decode
