"""Anomalies in PostgreSQL: published by the pipeline; read, acknowledged and muted by users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from tarry.core.anomalies import Anomaly, Band, JudgedQueue, Mute, Published, Severity, Told
from tarry.storage.postgres import insight_statements as insights
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Op, Row, Statement, sql

CHUNK = 5_000


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

    def told(self, *, detectors: Sequence[str], since: datetime, reach: datetime) -> Sequence[Told]:
        params = {"detectors": [*detectors], "since": since, "reach": reach}
        return self._reach.ask(Statement(sql("pipeline_told_anomalies"), params, _told).run)

    def list(
        self,
        *,
        queue: str | None = None,
        detector: str | None = None,
        severity: Severity | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        acknowledged: bool | None = None,
        limit: int | None = 100,
    ) -> list[Anomaly]:
        params = {
            **insights.EVERYTHING,
            "detector": detector,
            "severity": None if severity is None else Severity(severity).value,
            "since": since,
            "until": until,
            "acknowledged": acknowledged,
            "limit": None if limit is None else insights.limited(limit),
        }
        return self._reach.ask(lambda: insights.about(queue, "pipeline_anomalies", insights.anomaly, params))

    def acknowledge(self, ids: Sequence[int], *, by: str | None = None, note: str | None = None) -> int:
        return self._reach.ask(insights.acknowledge(ids, by, note).run)

    def mute(
        self, *, detector: str | None = None, queue: str | None = None, until: datetime | None = None, reason: str
    ) -> Mute:
        return self._reach.tell(insights.mute(detector, queue, until, reason))

    def unmute(self, id: int) -> bool:
        return self._reach.tell(insights.unmute(id).run())

    def mutes(self) -> list[Mute]:
        return self._reach.ask(insights.mutes().run)

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
            params = {"queue_id": (yield from insights.queue_id(queue)), "metric": metric}
            return (yield from Statement(sql("pipeline_bands"), params, _bands).run())

        return self._reach.ask(op)


def _count(rows: list[Row]) -> int:
    return rows[0][0]


def _told(rows: list[Row]) -> list[Told]:
    return [
        Told(
            detector=row[0], queue_id=row[1], queue=row[2], key=row[3], consumer=row[4], window_from=row[5],
            window_to=row[6], observed=row[7], expected_low=row[8], expected_high=row[9],
        )
        for row in rows
    ]  # fmt: skip


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
