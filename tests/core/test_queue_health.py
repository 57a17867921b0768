"""The verdict on a queue: what is wrong with it, in a sentence, and how bad that is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry.core.analytics.anomalies import Severity
from tarry.core.messages.model import Counted, Counts
from tarry.core.rollups.health import Concern, judge
from tarry.core.rollups.model import ConsumerSlice, QueueSlice, Standing
from tarry.core.settings import QueueInfo, QueueSettings

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
INFO = QueueInfo(name="orders", settings=QueueSettings(max_depth=100), created_at=NOW, updated_at=NOW)
WORKER = ConsumerSlice("orders", "worker", NOW, leased=1, acked=1, nacked=0, expired=0, work_s=0.1, last_at=NOW)


def standing(*, ready: int = 0, leased: int = 0, dead: int = 0, lag_s: float = 0, live: int | None = 10) -> Standing:
    none, lag_for = Counted(0), timedelta(seconds=lag_s)
    counts = Counts(delayed=none, ready=Counted(ready), leased=Counted(leased), dead=Counted(dead), lag_for=lag_for)
    return Standing(queue="orders", counts=counts, waiting=0, live_total=live)


def findings(info: QueueInfo = INFO, consumers: Any = (WORKER,), slices: Any = (), **now: Any) -> list[tuple[Any, Any]]:
    health = judge(info, standing(**now), slices, {}, consumers, NOW)
    return [(finding.concern, finding.severity) for finding in health.findings]


@pytest.mark.parametrize(
    ("now", "concern", "severity"),
    [
        ({"ready": 3, "lag_s": 61}, Concern.LATE, Severity.CRITICAL),
        ({"ready": 3, "consumers": ()}, Concern.UNCONSUMED, Severity.CRITICAL),
        ({"slices": [QueueSlice("orders", NOW, acked=8, nacked=2)]}, Concern.FAILING, Severity.WARNING),
        ({"slices": [QueueSlice("orders", NOW, buried=1)], "dead": 1}, Concern.DEAD, Severity.WARNING),
        ({"info": replace(INFO, paused_at=NOW)}, Concern.PAUSED, Severity.WARNING),
        ({"live": 90}, Concern.FULL, Severity.WARNING),
        ({"live": 100}, Concern.FULL, Severity.CRITICAL),
    ],
)
def test_what_is_wrong_is_found(now: dict[str, Any], concern: Concern, severity: Severity) -> None:
    assert findings(**now) == [(concern, severity)]


@pytest.mark.parametrize(
    "now",
    [
        {"ready": 3, "lag_s": 60},
        {"slices": [QueueSlice("orders", NOW, acked=5, nacked=4)]},
        {"slices": [QueueSlice("orders", NOW, buried=3, redriven=3)]},
        {"live": 89},
        {"live": None},
        {"info": replace(INFO, settings=QueueSettings()), "live": 10**6},
    ],
)
def test_what_is_within_its_limits_is_not(now: dict[str, Any]) -> None:
    assert findings(**now) == []


@pytest.mark.parametrize(
    ("quiet_s", "leased", "workers", "count"), [(59, 0, (), 1), (61, 0, (), 0), (61, 2, (), 1), (61, 0, ("a", "b"), 2)]
)
def test_a_consumer_counts_while_it_works_or_reports(
    quiet_s: float, leased: int, workers: tuple[str, ...], count: int
) -> None:
    ended = WORKER._replace(last_at=NOW - timedelta(seconds=quiet_s))
    assert judge(INFO, standing(leased=leased), (), {}, (ended,), NOW, workers).consumers == count
