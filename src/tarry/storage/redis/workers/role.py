"""`WorkersRole` on Redis: two hashes of the registry."""

from __future__ import annotations

import builtins
from datetime import datetime

import msgspec

from tarry.core.workers.model import KEPT_FOR, RELEASES_KEPT_FOR, RunningWorker, WorkerRelease, WorkerReport
from tarry.storage.redis.operation import Op, RedisRole, duration, instant, operation


class RedisWorkers(RedisRole):
    @operation
    def report(self, worker: WorkerReport) -> Op[bool]:
        about = {"id": worker.id, "consumer": worker.consumer, "report": msgspec.json.encode(worker).decode()}
        about |= {} if worker.release is None else {"release": worker.release}
        kept = {"kept_for": duration(KEPT_FOR), "releases_kept_for": duration(RELEASES_KEPT_FOR)}
        return bool((yield from self._registry("workers/report", **about, **kept)))

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
    def releases(self, since: datetime) -> Op[builtins.list[WorkerRelease]]:
        rows = [
            WorkerRelease(
                consumer=consumer.decode(),
                release=release.decode(),
                first_at=instant(int(first)),
                last_at=instant(int(last)),
            )
            for consumer, release, first, last in (yield from self._registry("workers/releases"))
        ]
        return sorted((row for row in rows if row.last_at >= since), key=lambda row: row.last_at, reverse=True)

    @operation
    def drain(self, consumer: str) -> Op[int]:
        return (yield from self._registry("workers/drain", consumer=consumer, kept_for=duration(KEPT_FOR)))


def _worker(started: bytes, seen: bytes, text: bytes, drain: bytes) -> RunningWorker:
    started_at, seen_at = instant(int(started)), instant(int(seen))
    drain_at = instant(int(drain)) if drain else None
    return RunningWorker.of(_report(text), started_at=started_at, seen_at=seen_at, drain_at=drain_at)


_report = msgspec.json.Decoder(WorkerReport).decode
