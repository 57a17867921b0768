"""Every verdict of the ledger is explained, and every one to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tarry.core.cron.explain import explain
from tarry.core.cron.model import Policy, Reason, ScheduleSpec, ScheduleState, TickRecord, Verdict
from tarry.core.cron.schedule_types import Periodic

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def state(*, paused_at: datetime | None = None, overlap: str = "allow") -> ScheduleState:
    policy = Policy(overlap=overlap)  # pyright: ignore[reportArgumentType] - as a caller may pass it
    spec = ScheduleSpec(name="p", schedule=Periodic(HOUR), queue="q", payload=b"1", policy=policy)
    return ScheduleState(
        spec=spec,
        cursor_at=NOON,
        wake_at=NOON + HOUR,
        decided_at=NOON,
        installed_at=NOON - 9 * HOUR,
        paused_at=paused_at,
    )


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("verdict", Verdict)
def test_a_decision_is_explained_with_its_reason(verdict: Verdict, reason: Reason) -> None:
    record = TickRecord(
        name="p", hash=Periodic(HOUR).config_hash, tick=NOON, verdict=verdict, reason=reason, decided_at=NOON - HOUR
    )
    explanation = explain(state(), NOON, NOON, [record])
    assert explanation.startswith(f"{NOON.isoformat()}: {verdict.value} at {(NOON - HOUR).isoformat()}, ")


@pytest.mark.parametrize(
    ("seen", "tick", "expected"),
    [
        (state(), NOON + HOUR, f"it lies ahead, and will be planned, due at {(NOON + HOUR).isoformat()}"),
        (state(overlap="skip"), NOON + HOUR, "if the message before is not live then"),
        (state(paused_at=NOON), NOON + HOUR, "the schedule is paused; it will be skipped unless it is resumed before"),
        (state(), NOON + HOUR / 2, "is not a tick of this schedule (every 1h); the next one after it is"),
        (state(), NOON - 20 * HOUR, "the schedule was installed later"),
    ],
)
def test_a_missing_decision_is_explained_too(seen: ScheduleState, tick: datetime, expected: str) -> None:
    assert expected in explain(seen, tick, NOON, [])
