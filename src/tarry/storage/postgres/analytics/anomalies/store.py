"""Anomalies in PostgreSQL: published by the pipeline; read and acknowledged by users. Mutes: `AnalyticsRole`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tarry.core.analytics.anomalies import Anomaly, ContinuableAnomaly, Published, Severity
from tarry.core.analytics.port import AnalyticsQuery
from tarry.storage.postgres.analytics import operations
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.statement import each, made

Rows = Sequence[tuple[Any, ...]]


class PostgresAnomalies(Role):
    def publish(
        self, rows: Iterable[str], *, detectors: Sequence[str], since: datetime, until: datetime, run_id: int
    ) -> Published:
        """Store what these detectors found between two instants, as JSON objects, in one transaction.

        Existing anomalies keep their id and acknowledgement. Muted ones are not raised.
        """
        (published,) = self._database.fetch(
            "analytics/anomalies/publish",
            each(made(Published)),
            rows=f"[{','.join(rows)}]",
            detectors=list(detectors),
            since=since,
            until=until,
            run_id=run_id,
        )
        return published

    def continuable(
        self, *, detectors: Sequence[str], since: datetime, frames_from: datetime
    ) -> Sequence[ContinuableAnomaly]:
        """Published anomalies of these detectors that began before `since` and lasted until `frames_from` or longer."""
        params = {"detectors": [*detectors], "since": since, "frames_from": frames_from}
        return self._database.fetch("analytics/anomalies/continuable", each(made(ContinuableAnomaly)), **params)

    def raised(self, *, detectors: Sequence[str], since: datetime) -> Rows:
        """Anomalies that these detectors have raised, by queue and hour since 1970: (detector, queue id, hour, number)."""
        return self._database.fetch("analytics/anomalies/raised", each(tuple), detectors=[*detectors], since=since)

    def queues(self) -> Rows:
        """The properties of all queues, including deleted ones, that detectors need and events do not contain."""
        return self._database.fetch("analytics/anomalies/queues", each(tuple))

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
        """Latest first."""
        query = AnalyticsQuery(queue=queue, since=since, until=until, limit=limit)
        return self._database.query(
            lambda: operations.anomalies(query, detector=detector, severity=severity, acknowledged=acknowledged)
        ).rows

    def acknowledge(
        self, ids: Sequence[int], *, by: str | None = None, note: str | None = None, is_false_positive: bool = False
    ) -> int:
        """Acknowledge anomalies, or mark them as false positives; returns how many were not so before."""
        return self._database.query(
            lambda: operations.acknowledge_all(ids, by, note, is_false_positive=is_false_positive)
        )
