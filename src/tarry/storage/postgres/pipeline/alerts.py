"""Anomalies: published by the pipeline, read, acknowledged and muted by people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from tarry.core.anomalies import Anomaly, Band, JudgedQueue, Mute, Published, Severity
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Op, Row, Statement, sql

CHUNK = 5_000
MOST_ROWS = 100_000
"""What one question may be answered with, whatever limit it has."""


class PostgresAlerts:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def publish(
        self, rows: Iterable[str], *, detectors: Sequence[str], since: datetime, until: datetime, run_id: int
    ) -> Published:
        params = {
            "rows": f"[{','.join(rows)}]",
            "detectors": list(detectors),
            "since": since,
            "until": until,
            "run_id": run_id,
        }
        return self._reach.ask(
            Statement(sql("pipeline_publish_anomalies"), params, lambda rows: Published(*rows[0])).run
        )

    def list(
        self,
        *,
        queue: str | None = None,
        detector: str | None = None,
        severity: Severity | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        acknowledged: bool | None = None,
        limit: int = 100,
    ) -> list[Anomaly]:
        if limit < 0:
            raise InvalidInput("limit must not be negative")
        params = {
            "detector": detector,
            "severity": None if severity is None else Severity(severity).value,
            "since": since,
            "until": until,
            "acknowledged": acknowledged,
            "limit": min(limit, MOST_ROWS),
        }

        def op() -> Op[list[Anomaly]]:
            asked = {**params, "queue_id": (yield from _queue_id(queue))}
            return (yield from Statement(sql("pipeline_anomalies"), asked, _anomalies).run())

        return self._reach.ask(op)

    def acknowledge(self, ids: Sequence[int], *, by: str | None = None, note: str | None = None) -> int:
        params = {"ids": list(ids), "by": by, "note": note}
        return self._reach.ask(Statement(sql("pipeline_acknowledge"), params, _count).run)

    def mute(
        self, *, detector: str | None = None, queue: str | None = None, until: datetime | None = None, reason: str
    ) -> Mute:
        if until is not None and until.tzinfo is None:
            raise InvalidInput("`until` needs a time zone")

        def op() -> Op[Mute]:
            params: dict[str, Any] = {"detector": detector, "queue": queue, "until": until, "reason": reason}
            params["queue_id"] = yield from _queue_id(queue)
            return (yield from Statement(sql("pipeline_mute"), params, lambda rows: _mute(rows[0])).run())

        return self._reach.tell(op())

    def unmute(self, id: int) -> bool:
        return bool(self._reach.tell(Statement(sql("pipeline_unmute"), {"id": id}, _count).run()))

    def mutes(self) -> list[Mute]:
        return self._reach.ask(Statement(sql("pipeline_mutes"), {}, lambda rows: [_mute(row) for row in rows]).run)

    def queues(self) -> list[JudgedQueue]:
        return self._reach.ask(Statement(sql("pipeline_judged_queues"), {}, _queues).run)

    def put_bands(self, rows: Iterable[str]) -> int:
        changed, left = 0, iter(rows)
        while chunk := list(islice(left, CHUNK)):
            params = {"rows": f"[{','.join(chunk)}]"}
            changed += self._reach.ask(Statement(sql("pipeline_put_bands"), params, _count).run)
        return changed

    def bands(self, queue: str, metric: str) -> list[Band]:
        def op() -> Op[list[Band]]:
            params = {"queue_id": (yield from _queue_id(queue)), "metric": metric}
            return (yield from Statement(sql("pipeline_bands"), params, _bands).run())

        return self._reach.ask(op)


def _queue_id(queue: str | None) -> Op[int | None]:
    if queue is None:
        return None
    found = yield from Statement(
        sql("pipeline_queue_id"), {"queue": queue}, lambda rows: rows[0][0] if rows else None
    ).run()
    if found is None:
        raise UnknownQueue(queue)
    return found


def _count(rows: list[Row]) -> int:
    return rows[0][0]


def _anomalies(rows: list[Row]) -> list[Anomaly]:
    return [
        Anomaly(
            id=row[0], detector=row[1], detector_version=row[2], severity=Severity(row[3]), queue=row[4], key=row[5],
            consumer=row[6], window_from=row[7], window_to=row[8], sentence=row[9], observed=row[10],
            expected_low=row[11], expected_high=row[12], score=row[13], evidence=row[14], fingerprint=row[15],
            raised_at=row[16], acknowledged_at=row[17], acknowledged_by=row[18], note=row[19], run_id=row[20],
            fresh_at=row[21],
        )
        for row in rows
    ]  # fmt: skip


def _mute(row: Row) -> Mute:
    return Mute(id=row[0], detector=row[1], queue=row[2], until=row[3], reason=row[4], muted_at=row[5])


def _queues(rows: list[Row]) -> list[JudgedQueue]:
    return [
        JudgedQueue(
            queue_id=row[0], queue=row[1], max_attempts=row[2], created_at=row[3], deleted_at=row[4], journaled=row[5]
        )
        for row in rows
    ]  # fmt: skip


def _bands(rows: list[Row]) -> list[Band]:
    return [
        Band(
            queue=row[0], metric=row[1], hour_of_week=row[2], low=row[3], middle=row[4], high=row[5], minutes=row[6],
            run_id=row[7], fresh_at=row[8],
        )
        for row in rows
    ]  # fmt: skip
