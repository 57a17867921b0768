# pyright: basic
"""The row that a detector returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.anomalies.context import RAISED, DetectorContext, continued
from tarry.edges.spark.transforms.query import filled, nothing, query, sql

if TYPE_CHECKING:
    from tarry.edges.spark.transforms.anomalies.registry import Detector

FINDINGS = struct(
    "detector string, detector_version int, severity string, queue_id int, queue string, key string, consumer string, "
    "window_from timestamp, window_to timestamp, sentence string, observed double, expected_low double, "
    "expected_high double, score double, evidence string, fingerprint string"
)
"""`fingerprint` is stable across runs: the same anomaly is raised once."""

_REQUIRED = ("queue_id", "queue", "window_from", "window_to", "sentence")
_EVIDENCE = (
    "select * from tarry.journal where queue = {queue:sql} and at >= {(window_from - interval 1 minute):instant} "
    "and at <= {(window_to + interval 1 minute):instant}"
)
"""The journal of the queue in the window, extended by one minute on both sides."""


def completed(frame: DataFrame, detector: Detector, context: DetectorContext) -> DataFrame:
    """The frame of a detector with all columns of `FINDINGS`.

    A detector must return queue_id, queue, window_from, window_to and sentence. Other missing columns become null;
    `evidence` defaults to the journal of the queue in the window. `identity` (text) identifies the anomaly across runs;
    it defaults to the key, the consumer and the start, or the start of the published anomaly that it continues. With `id` in
    the frame, `most_per_hour` rows per queue are kept, including those that earlier runs have raised.
    """
    given = frame.columns
    if missing := [column for column in _REQUIRED if column not in given]:
        raise ValueError(f"detector {detector.name} returns no column {', '.join(missing)}")
    most = getattr(detector.settings, "most_per_hour", None)
    if most is not None and "id" in given:
        frame = limited(frame, most, detector.name, context.raised)
    if "identity" not in given:
        frame = continued(frame, context.continuable)
    of_key = "coalesce(" + filled(" and key = {key:sql}") + ", '')" if "key" in given else "''"
    known = [f"coalesce({column}, '')" for column in ("key", "consumer") if column in given]
    start = f"concat_ws('|', {', '.join([*known, 'cast(unix_micros(window_from) as string)'])})"
    identity = "identity" if "identity" in given else start
    values = dict(zip(given, given, strict=True)) | {
        "detector": ":name",
        "detector_version": ":version",
        "severity": ":severity",
        "evidence": "evidence" if "evidence" in given else f"concat({filled(_EVIDENCE)}, {of_key}, ' order by id')",
        "fingerprint": f"substr(sha2(concat_ws('|', :name, cast(queue_id as string), {identity}), 256), 1, 32)",
    }
    columns = ", ".join(
        f"cast({values.get(field.name, 'null')} as {field.dataType.simpleString()}) as {field.name}"
        for field in FINDINGS
    )
    args = {"name": detector.name, "version": detector.version, "severity": detector.severity.value}
    return query(f"select {columns} from {{findings}}", args, findings=frame)  # noqa: S608


def limited(findings: DataFrame, most: int, name: str, raised: DataFrame | None) -> DataFrame:
    """At most `most` findings of a detector per queue and hour."""
    if raised is None:
        return query(sql("anomalies/limited", raised=nothing(RAISED)), {"most": most}, findings=findings)
    known = sql("anomalies/limited", raised="select * from {raised} where detector = :name")
    return query(known, {"most": most, "name": name}, findings=findings, raised=raised)
