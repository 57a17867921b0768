"""One request about schedules neither stops the broker nor makes it store without limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tarry.core.schedules import Timetable
from tarry.edges.http import ruling_shapes
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code
from tests.edges.http.test_schedules import put
from tests.kit.steps import PATIENCE_S, in_background

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
def held(ask: Caller, pinned: MutableClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    put(ask, "worst", DAILY)
    pinned.advance(timedelta(days=5))
    held, real = Held(), Timetable.next_after

    def waiting(self: Timetable, at: datetime) -> datetime | None:
        held.entered.set()
        assert held.let_go.wait(PATIENCE_S), "the event loop waits for the computation"
        return real(self, at)

    monkeypatch.setattr(Timetable, "next_after", waiting)
    yield held
    held.let_go.set()


@pytest.mark.parametrize(("method", "path", "body"), WORST, ids=[f"{method} {path}" for method, path, _ in WORST])
def test_the_broker_answers_while_ticks_are_computed(
    ask: Caller, held: Held, method: str, path: str, body: Any
) -> None:
    with in_background(ask, method, path, body) as asking:
        assert held.entered.wait(PATIENCE_S)
        assert ask("GET", "/healthz").status_code == 200
        assert not asking.done()
        held.let_go.set()
        assert asking.result(PATIENCE_S).status_code in (200, 201)


def test_the_worst_legal_schedules_are_answered(ask: Caller, pinned: MutableClock) -> None:
    put(ask, "worst", DAILY)
    put(ask, "rare", RARE)
    pinned.advance(timedelta(days=5))
    filled = ask("POST", "/v1/schedules/worst:backfill", RANGE).json()["ticks"]
    assert len(filled) == 5 * 24 * 60 - 1  # the first tick was planned when it was installed
    assert len(ask("GET", "/v1/schedules/rare:preview?n=100").json()["fires"]) == 100
    long_ago = {"since": "0001-01-01T00:00:00Z", "until": "2024-01-06T00:00:00Z", "dry_run": True}
    assert len(ask("POST", "/v1/schedules/rare:backfill", long_ago).json()["ticks"]) == 48  # 1988 and 2016
    assert "not a tick" in ask("GET", "/v1/schedules/rare:explain?tick=0001-01-01T00:00:00Z").json()["explanation"]


def test_too_many_hours_are_refused(ask: Caller) -> None:
    status, _ = code(ask("PUT", "/v1/schedules/x", {**DAILY, "daily": [*HOURS, "00:00:01"]}))
    assert status == 422
    assert ask("PUT", "/v1/schedules/x", {**DAILY, "daily": HOURS}).status_code == 201


def test_a_range_with_too_many_ticks_is_refused(ask: Caller, pinned: MutableClock) -> None:
    put(ask, "second", {"every": "1s", "queue": "q", "payload": 1})
    pinned.advance(timedelta(days=5))
    answer = ask("POST", "/v1/schedules/second:backfill", RANGE)
    assert answer.status_code == 409
    assert "10,000 ticks" in answer.json()["detail"]


def test_a_backfill_of_too_many_bytes_is_refused(ask: Caller, pinned: MutableClock) -> None:
    put(ask, "big", {"every": "1m", "queue": "q", "payload": "x" * 200_000})
    pinned.advance(timedelta(days=5))
    answer = ask("POST", "/v1/schedules/big:backfill", {**RANGE, "dry_run": False})
    assert answer.status_code == 409
    assert "16 MiB" in answer.json()["detail"]
    assert ask("GET", "/v1/queues/q").json()["counts"]["ready"]["n"] <= 1


class TestPlanning:
    def plan(self, ask: Caller, ticks: int, prefixes: tuple[str, ...] = ("big",)) -> Any:
        rulings: list[dict[str, Any]] = []
        for prefix in prefixes:
            found = ask("GET", f"/v1/schedules/{prefix}").json()
            rulings.append(
                {
                    "prefix": prefix,
                    "expected": found["revision"],
                    "ruled_at": "2024-01-01T00:00:00Z",
                    "cursor_at": "2024-01-01T00:00:00Z",
                    "ticks": [
                        {"tick": f"2024-01-02T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z"} for n in range(ticks)
                    ],
                }
            )
        return ask("POST", "/v1/schedules:plan", {"rulings": rulings})

    def test_the_payload_of_a_schedule_counts_with_each_tick(self, ask: Caller) -> None:
        put(ask, "big", {"every": "1h", "queue": "q", "payload": "x" * 250_000})
        refused = self.plan(ask, 800)
        assert refused.status_code == 422
        assert "33,554,432 are allowed" in refused.json()["detail"]
        assert ask("GET", "/v1/schedules/big:history").json()["ticks"][1:] == []
        assert self.plan(ask, 100).json() == {"held": [True]}

    def test_the_ticks_of_a_request_are_counted_together(self, ask: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        for prefix in ("a", "b"):
            put(ask, prefix, {"every": "1h", "queue": "q", "payload": 1})
        monkeypatch.setattr(ruling_shapes, "MOST_TICKS", 100)
        refused = self.plan(ask, 51, ("a", "b"))
        assert refused.status_code == 422
        assert "102 ticks, and 100 are allowed" in refused.json()["detail"]
        assert self.plan(ask, 50, ("a", "b")).json() == {"held": [True, True]}
