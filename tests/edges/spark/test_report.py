"""The report: what follows from served rows, and how it is written. No Spark is needed for any of it."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest

from tarry.core.analytics.anomalies import Severity
from tarry.edges.cli.output.printer import Output, Printer
from tarry.edges.spark.report.gather import findings_of
from tarry.edges.spark.report.html import page
from tarry.edges.spark.report.terminal import print_report
from tarry.edges.spark.report.values import (
    FEWEST_BUCKETS,
    MOST_BUCKETS,
    AnomalyLine,
    Report,
    axis,
    expected_band,
    report_of,
)
from tarry.edges.spark.report.words import seconds, sparkline
from tests.edges.spark.sample_report import MINUTE, NASTY, NOON, anomaly, full, hour, metric


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def text_of(report: Report, out: StringIO | None = None) -> str:
    """As it is printed to a pipe, or to this terminal."""
    out = out or StringIO()
    with redirect_stdout(out):
        print_report(Printer(Output.TABLE, color=False), report)
    return out.getvalue()


@pytest.mark.parametrize(
    "back", [MINUTE, timedelta(hours=1), timedelta(days=1), timedelta(days=30), timedelta(days=900)]
)
def test_an_axis_covers_the_time_in_equal_steps_that_can_be_drawn(back: timedelta) -> None:
    starts, step = axis(NOON - back, NOON)
    assert FEWEST_BUCKETS <= len(starts) <= MOST_BUCKETS + 1
    assert starts[0] <= NOON - back
    assert starts[-1] < NOON <= starts[-1] + step
    assert {after - before for before, after in pairwise(starts)} == {step}


def test_counts_are_added_up_and_depth_is_that_of_the_last_minute() -> None:
    report = full()
    (queue,) = report.queues
    assert (queue.total("offered"), queue.total("acked"), queue.total("failed")) == (15, 9, 3)
    assert queue.depth == 1
    assert report.total("offered") == 15


def test_a_minute_without_events_keeps_the_depth_of_the_one_before() -> None:
    report = report_of(metrics=[metric(NOON - 5 * MINUTE, depth=7)], since=NOON - 10 * MINUTE, until=NOON, made_at=NOON)
    depths = [bucket.depth for bucket in report.queues[0].buckets]
    assert depths[-1] == 7
    assert depths[0] is None


def test_consumers_are_summed_over_hours_the_busiest_first() -> None:
    hours = [hour("a", 1, 1), hour("b", 6, 3, 3), hour("b", 3, 3, at=NOON - timedelta(hours=1))]
    report = report_of(consumers=hours, since=NOON - timedelta(hours=3), until=NOON, made_at=NOON)
    first, second = report.queues[0].consumers
    assert (first.consumer, first.leased, first.share) == ("b", 9, 0.9)
    assert first.success_rate == pytest.approx(6 / 9)
    assert second.success_rate == 1.0


def test_anomalies_of_a_kind_are_one_finding_by_the_latest() -> None:
    later = anomaly(2, window_from=NOON + MINUTE)
    seen = anomaly(3, acknowledged_at=NOON)
    findings = findings_of([anomaly(1), later, seen])
    assert [(finding.anomaly.id, finding.times, finding.acknowledged) for finding in findings] == [
        (2, 2, False),
        (3, 1, True),
    ]


def test_critical_findings_come_first_and_acknowledged_ones_last() -> None:
    unsorted = [
        AnomalyLine(anomaly(1, severity=Severity.INFO)),
        AnomalyLine(anomaly(2, severity=Severity.CRITICAL, acknowledged_at=NOON)),
        AnomalyLine(anomaly(3, severity=Severity.CRITICAL)),
        AnomalyLine(anomaly(4, severity=Severity.WARNING)),
    ]
    report = report_of(findings=unsorted, since=NOON - MINUTE, until=NOON, made_at=NOON)
    assert [finding.anomaly.id for finding in report.findings] == [3, 4, 1, 2]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1, 2, "1 to 2"), (None, 0.5, "at most 0.5"), (3, None, "at least 3"), (None, None, None)],
)
def test_an_expected_band_is_written_in_words(low: float | None, high: float | None, expected: str | None) -> None:
    assert expected_band(low, high) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (0.0032, "3.2 ms"), (1.5, "1.5 s"), (600, "10 min"), (10_800, "3 h"), (864_000, "10 d")],
)
def test_seconds_have_the_unit_that_fits(value: float | None, expected: str) -> None:
    assert seconds(value) == expected


def test_a_sparkline_is_as_wide_as_the_terminal_allows_and_shows_gaps_and_peaks() -> None:
    assert sparkline([0, None, 8], 3) == "▁ █"
    assert len(sparkline(list(range(100)), 24)) == 24
    assert sparkline([]) == ""


def test_a_span_that_has_not_ended_has_no_counts_yet() -> None:
    unfinished = report_of(
        metrics=[metric(NOON - MINUTE, offered=5), metric(NOON, offered=1)],
        since=NOON - timedelta(hours=1),
        until=NOON + MINUTE / 2,
        made_at=NOON,
    )
    assert unfinished.queues[0].counts("offered")[-2:] == [5, None]


def test_a_message_that_is_buried_has_not_failed_twice() -> None:
    minute = metric(NOON - MINUTE, nacked=2, expired=1, buried=1)
    report = report_of(metrics=[minute], since=NOON - timedelta(hours=1), until=NOON, made_at=NOON)
    assert report.total("failed") == 3


def test_the_page_is_complete_in_itself_and_every_chart_has_a_table() -> None:
    text = page(full())
    assert "<link" not in text
    assert re.findall(r"<script[^>]*>", text) == ["<script>", '<script type="module">']
    assert [fetched for fetched in re.findall(r'<[^>]+(?:src|href|srcset)="([^"]*)"', text) if fetched[0] != "#"] == []
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    figures = re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL)
    assert len(figures) == 5
    assert all("<table" in figure for figure in figures)


def test_the_page_is_light_or_dark_as_the_reader_wants() -> None:
    assert "prefers-color-scheme: dark" in page(full())


def test_an_empty_report_is_a_page_too() -> None:
    span: dict[str, Any] = {"since": NOON - MINUTE, "until": NOON, "made_at": NOON}
    before = report_of(**span, notes=["The pipeline has not run yet"])
    assert all("The pipeline has not run yet" in text for text in (page(before), text_of(before)))
    assert not any("queue had any traffic" in text for text in (page(before), text_of(before)))
    empty = report_of(**span, runs=full().runs)
    assert all("o queue had any traffic" in text for text in (page(empty), text_of(empty)))


def test_text_of_messages_is_never_markup_nor_an_escape() -> None:
    report = full(NASTY)
    nasty = AnomalyLine(anomaly(queue=NASTY, sentence=NASTY, evidence=NASTY, detector=NASTY))
    report = replace(report, findings=(nasty,), notes=(NASTY,))
    text = page(report)
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b[31m" not in text_of(report)


def test_the_terminal_shows_queues_consumers_anomalies_and_the_forecast() -> None:
    text = text_of(full())
    for part in (
        "orders",
        "worker-1",
        "1 anomaly",
        "order-1 was buried.",
        "observed 3 attempts, expected at most 2",
        "7 messages are",
    ):
        assert part in text
    assert "█" in text


def test_very_many_findings_end_with_how_many_more_there_are() -> None:
    many = [AnomalyLine(anomaly(n, queue=f"q{n}")) for n in range(300)]
    report = report_of(findings=many, since=NOON - MINUTE, until=NOON, made_at=NOON)
    assert "and 100 more" in page(report)
    assert "and 288 more" in text_of(report)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_width_loses_a_part_of_a_queues_name(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "department-of-invoices.reminders.second-notice"
    report = full()
    report = replace(report, queues=(replace(report.queues[0], queue=name),))
    monkeypatch.setenv("COLUMNS", str(width))
    table = text_of(report, Terminal()).partition("Consumers")[0]
    assert name in "".join(line.split(" ")[0] for line in table.splitlines())
    assert max(map(len, table.splitlines())) <= width
    assert f"{name} " in text_of(report).partition("Consumers")[0]  # in one piece, for grep


def test_a_report_claims_nothing_about_anomalies_before_the_job_ran() -> None:
    report = replace(full(), findings=(), runs=())
    assert "the job has not run yet" in text_of(report)
    assert "No anomalies" not in text_of(report)
