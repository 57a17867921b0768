"""One request about schedules neither stops the broker nor makes it store without limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tarry.core.cron.schedule_types import Timetable
from tarry.testing import MutableClock
from tarry.wire import schedules as schedule_changes
from tests.edges.http.conftest import Caller
from tests.edges.http.routes.test_schedules import put
from tests.edges.http.test_responses import code
from tests.kit.steps import TIMEOUT_S, in_background

HOURS = [f"{n // 60:02}:{n % 60:02}" for n in range(24 * 60)]
DAILY: dict[str, Any] = {"daily": HOURS, "zone": "Europe/Berlin", "queue": "q", "payload": 1}
RARE: dict[str, Any] = {"cron": "0 * * 2 1#5", "zone": "Europe/Berlin", "queue": "q", "payload": 1}
RANGE = {"since": "2024-01-01T00:00:00Z", "until": "2024-01-06T00:00:00Z", "dry_run": True}
WORST: list[tuple[str, str, Any]] = [
    ("GET", "/v1/schedules", None),
    ("GET", "/v1/schedules/worst", None),
    ("GET", "/v1/schedules/worst:preview?n=100", None),
    ("GET", "/v1/schedules/worst:explain?tick=0001-01-01T00:00:00Z", None),
    ("POST", "/v1/schedules/worst:backfill", RANGE),
    ("POST", "/v1/schedules/worst:pause", None),
    ("POST", "/v1/schedules/worst:skip", None),
    ("POST", "/v1/schedules:due", {}),
    ("PUT", "/v1/schedules/worst", RARE),
    ("PUT", "/v1/schedules/other", DAILY),
]


class Held:
    """Keeps computations of ticks waiting until it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()


@pytest.fixture
def held(call: Caller, pinned: MutableClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    put(call, "worst", DAILY)
    pinned.advance(timedelta(days=5))
    held, real = Held(), Timetable.next_after

    def waiting(self: Timetable, at: datetime) -> datetime | None:
        held.entered.set()
        assert held.let_go.wait(TIMEOUT_S), "the event loop waits for the computation"
        return real(self, at)

    monkeypatch.setattr(Timetable, "next_after", waiting)
    yield held
    held.let_go.set()


@pytest.mark.parametrize(("method", "path", "body"), WORST, ids=[f"{method} {path}" for method, path, _ in WORST])
def test_the_broker_responds_while_ticks_are_computed(
    call: Caller, held: Held, method: str, path: str, body: Any
) -> None:
    with in_background(call, method, path, body) as pending:
        assert held.entered.wait(TIMEOUT_S)
        assert call("GET", "/healthz").status_code == 200
        assert not pending.done()
        held.let_go.set()
        assert pending.result(TIMEOUT_S).status_code in (200, 201)


def test_the_worst_legal_schedules_are_computed(call: Caller, pinned: MutableClock) -> None:
    put(call, "worst", DAILY)
    put(call, "rare", RARE)
    pinned.advance(timedelta(days=5))
    filled = call("POST", "/v1/schedules/worst:backfill", RANGE).json()["ticks"]
    assert len(filled) == 5 * 24 * 60 - 1  # the first tick was planned when it was installed
    assert len(call("GET", "/v1/schedules/rare:preview?n=100").json()["fires"]) == 100
    long_ago = {"since": "0001-01-01T00:00:00Z", "until": "2024-01-06T00:00:00Z", "dry_run": True}
    assert len(call("POST", "/v1/schedules/rare:backfill", long_ago).json()["ticks"]) == 48  # 1988 and 2016
    assert "not a tick" in call("GET", "/v1/schedules/rare:explain?tick=0001-01-01T00:00:00Z").json()["explanation"]


def test_too_many_hours_are_refused(call: Caller) -> None:
    status, _ = code(call("PUT", "/v1/schedules/x", {**DAILY, "daily": [*HOURS, "00:00:01"]}))
    assert status == 422
    assert call("PUT", "/v1/schedules/x", {**DAILY, "daily": HOURS}).status_code == 201


def test_a_range_with_too_many_ticks_is_refused(call: Caller, pinned: MutableClock) -> None:
    put(call, "second", {"every": "1s", "queue": "q", "payload": 1})
    pinned.advance(timedelta(days=5))
    response = call("POST", "/v1/schedules/second:backfill", RANGE)
    assert response.status_code == 409
    assert "10,000 ticks" in response.json()["detail"]


def test_a_backfill_of_too_many_bytes_is_refused(call: Caller, pinned: MutableClock) -> None:
    put(call, "big", {"every": "1m", "queue": "q", "payload": "x" * 200_000})
    pinned.advance(timedelta(days=5))
    response = call("POST", "/v1/schedules/big:backfill", {**RANGE, "dry_run": False})
    assert response.status_code == 409
    assert "16 MiB" in response.json()["detail"]
    assert call("GET", "/v1/queues/q").json()["counts"]["ready"]["n"] <= 1


class TestPlanning:
    def plan(self, call: Caller, ticks: int, names: tuple[str, ...] = ("big",)) -> Any:
        changes: list[dict[str, Any]] = []
        for name in names:
            body = call("GET", f"/v1/schedules/{name}").json()
            changes.append(
                {
                    "name": name,
                    "expected": body["revision"],
                    "decided_at": "2024-01-01T00:00:00Z",
                    "after": {"cursor_at": "2024-01-01T00:00:00Z"},
                    "ticks": [
                        {"tick": f"2024-01-02T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z"} for n in range(ticks)
                    ],
                }
            )
        return call("POST", "/v1/schedules:plan", {"changes": changes})

    def test_the_payload_of_a_schedule_counts_with_each_tick(self, call: Caller) -> None:
        put(call, "big", {"every": "1h", "queue": "q", "payload": "x" * 250_000})
        refused = self.plan(call, 800)
        assert refused.status_code == 422
        assert "33,554,432 are allowed" in refused.json()["detail"]
        assert call("GET", "/v1/schedules/big:history").json()["ticks"][1:] == []
        assert self.plan(call, 100).json() == {"applied": [True]}

    def test_the_ticks_of_a_request_are_counted_together(self, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a", "b"):
            put(call, name, {"every": "1h", "queue": "q", "payload": 1})
        monkeypatch.setattr(schedule_changes, "MOST_TICKS", 100)
        refused = self.plan(call, 51, ("a", "b"))
        assert refused.status_code == 422
        assert "102 ticks; at most 100 are allowed" in refused.json()["detail"]
        assert self.plan(call, 50, ("a", "b")).json() == {"applied": [True, True]}
