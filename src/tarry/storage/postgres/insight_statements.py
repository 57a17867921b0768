"""What people read of the pipeline's work, as statements: shared by those who block and those who await."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, LiteralString, TypeVar

from tarry.core.anomalies import Anomaly, Mute, Severity
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.pipeline import PastRun
from tarry.core.serving import ConsumerHour, Forecast, MetricMinute, Quantiles
from tarry.storage.postgres.statement import Op, Row, Statement, sql

R = TypeVar("R")

MOST_ROWS = 100_000
"""What one question may ask for."""
EVERYTHING: Final[Mapping[str, Any]] = dict.fromkeys(
    ("names", "beginnings", "after_at", "after_id", "after_text", "id", "since", "until")
)
"""Every queue, from the first row on, at any time."""


def about(queue: str | None, verb: LiteralString, decode: Callable[[Row], R], params: Mapping[str, Any]) -> Op[list[R]]:
    asked = {**params, "queue_id": (yield from queue_id(queue))}
    return (yield from Statement(sql(verb), asked, lambda rows: [decode(row) for row in rows]).run())


def queue_id(queue: str | None) -> Op[int | None]:
    if queue is None:
        return None
    found = yield from Statement(
        sql("pipeline_queue_id"), {"queue": queue}, lambda rows: rows[0][0] if rows else None
    ).run()
    if found is None:
        raise UnknownQueue(queue)
    return found


def acknowledge(ids: Sequence[int], by: str | None, note: str | None) -> Statement[int]:
    return Statement(sql("pipeline_acknowledge"), {"ids": list(ids), "by": by, "note": note}, _count)


def mute(detector: str | None, queue: str | None, until: datetime | None, reason: str) -> Op[Mute]:
    if until is not None and until.tzinfo is None:
        raise InvalidInput("`until` needs a time zone")
    params: dict[str, Any] = {"detector": detector, "queue": queue, "until": until, "reason": reason}
    params["queue_id"] = yield from queue_id(queue)
    yield from Statement(sql("pipeline_mute_lock"), {}, lambda rows: None).run()
    return (yield from Statement(sql("pipeline_mute"), params, lambda rows: _mute(rows[0])).run())


def mutes() -> Statement[list[Mute]]:
    return Statement(sql("pipeline_mutes"), {}, lambda rows: [_mute(row) for row in rows])


def unmute(id: int) -> Statement[bool]:
    return Statement(sql("pipeline_unmute"), {"id": id}, lambda rows: bool(rows[0][0]))


def _count(rows: list[Row]) -> int:
    return rows[0][0]


def limited(limit: int) -> int:
    """Refused where it could not be kept: fewer rows than were asked for would be taken for all there are."""
    if not 0 <= limit <= MOST_ROWS:
        raise InvalidInput(f"limit must be within 0 and {MOST_ROWS:,}")
    return limit


def quantiles(row: Row, start: int) -> Quantiles | None:
    return None if row[start] is None else Quantiles(*row[start : start + 3])


def minute(row: Row) -> MetricMinute:
    return MetricMinute(
        queue=row[0], minute=row[1], offered=row[2], updated=row[3], redriven=row[4], leased=row[5], acked=row[6],
        nacked=row[7], released=row[8], expired=row[9], buried=row[10], dropped=row[11], purged=row[12],
        refused=row[13], bytes_offered=row[14], depth=row[15], dead=row[16], lag=quantiles(row, 17),
        wait=quantiles(row, 20), processing=quantiles(row, 23), exact=row[26], run_id=row[27], fresh_at=row[28],
    )  # fmt: skip


def hour(row: Row) -> ConsumerHour:
    return ConsumerHour(
        queue=row[0], hour=row[1], consumer=row[2], leased=row[3], acked=row[4], failed=row[5], expired=row[6],
        released=row[7], success_rate=row[8], share=row[9], processing=quantiles(row, 10), exact=row[13],
        run_id=row[14], fresh_at=row[15],
    )  # fmt: skip


def forecast(row: Row) -> Forecast:
    return Forecast(
        queue=row[0], planned=row[1], retries=row[2], capacity=row[3], saturated_at=row[4], recovered_at=row[5],
        peak_backlog=row[6], peak_at=row[7], sentence=row[8], run_id=row[9], fresh_at=row[10],
    )  # fmt: skip


def anomaly(row: Row) -> Anomaly:
    return Anomaly(
        id=row[0], detector=row[1], detector_version=row[2], severity=Severity(row[3]), queue=row[4], key=row[5],
        consumer=row[6], window_from=row[7], window_to=row[8], sentence=row[9], observed=row[10],
        expected_low=row[11], expected_high=row[12], score=row[13], evidence=row[14], fingerprint=row[15],
        raised_at=row[16], acknowledged_at=row[17], acknowledged_by=row[18], note=row[19], run_id=row[20],
        fresh_at=row[21],
    )  # fmt: skip


def _mute(row: Row) -> Mute:
    return Mute(id=row[0], detector=row[1], queue=row[2], until=row[3], reason=row[4], muted_at=row[5])


def last_run(job: str, lake: str | None = None) -> Statement[PastRun | None]:
    params = {"job": job, "lake": lake}
    return Statement(sql("pipeline_last_run"), params, lambda rows: past_run(rows[0]) if rows else None)


def last_runs(jobs: Sequence[str]) -> Op[list[PastRun]]:
    ask = Statement(sql("pipeline_last_runs"), {"jobs": list(jobs)}, lambda rows: [(past_run(r), r[7]) for r in rows])
    seen = yield from ask.run()
    unheld = {run.id for run, held in seen if not held}
    if unheld:
        # It may have ended after it was read and before its lock was looked at: who ends is written down before that.
        seen = yield from ask.run()
    return [replace(run, state="lost") if run.id in unheld and run.state == "running" else run for run, _ in seen]


def past_run(row: Row) -> PastRun:
    return PastRun(
        id=row[0], job=row[1], started_at=row[2], ended_at=row[3], state=row[4], summary=row[5], error=row[6]
    )
