"""What the pipeline wrote, over HTTP: in pages, with its age, restricted by access; and nothing where it never ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

import tarry
from tarry.app import AsyncApp
from tarry.core.analytics.metrics import Table
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.wire import analytics as wire
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.steps import all_at_once

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
COUNTS = ("offered", "updated", "redriven", "leased", "acked", "nacked", "released", "expired", "buried", "dropped",
          "discarded", "refused", "bytes_offered", "depth", "dead")  # fmt: skip
QUEUES = {"own": 1, "foreign": 2}


@pytest.fixture
def ran(database: str) -> Iterator[tarry.App]:
    """A database with queues; the pipeline has not run yet."""
    with tarry.connect(database) as app:
        for name in QUEUES:
            app.queues.create(name)
        yield app


@pytest.fixture
def behind(ran: tarry.App, http_loop: Loop) -> Iterator[AsyncApp]:
    async def connected() -> AsyncApp:
        return await tarry.connect_async(ran.dsn)

    app = http_loop.run(connected())
    yield app
    http_loop.run(app.close())


@pytest.fixture
def guarded(behind: AsyncApp, http_loop: Loop) -> Caller:
    return Caller(broker_app(behind, BrokerSettings()), http_loop)


def job(app: tarry.App, name: str) -> int:
    with app.pipeline.manifest.run(name) as run:
        return run.id


def fill_minutes(app: tarry.App, n: int) -> int:
    run = job(app, "metrics")
    rows = [
        {"queue_id": id, "queue": name, "minute": (NOW - i * timedelta(minutes=1)).isoformat(),
         **dict.fromkeys(COUNTS, i), "exact": True, "run_id": run, "fresh_at": NOW.isoformat()}
        for i in range(n) for name, id in QUEUES.items()
    ]  # fmt: skip
    app.pipeline.analytics.put(Table.METRICS, [json.dumps(row) for row in rows])
    return run


def fill_hours(app: tarry.App, n: int) -> None:
    run = job(app, "consumers")
    rows = [
        {"queue_id": id, "queue": name, "hour": (NOW - i * timedelta(hours=1)).isoformat(), "consumer": consumer,
         "leased": i, "acked": 0, "failed": 0, "expired": 0, "released": 0, "processing_p50_s": 0.5,
         "processing_p95_s": 1.0, "processing_p99_s": 2.0, "exact": True, "run_id": run, "fresh_at": NOW.isoformat()}
        for i in range(n) for name, id in QUEUES.items() for consumer in ("a", "B")
    ]  # fmt: skip
    app.pipeline.analytics.put(Table.CONSUMERS, [json.dumps(row) for row in rows])


def raise_anomalies(app: tarry.App, n: int) -> None:
    run = job(app, "anomalies")
    rows = [
        {"fingerprint": f"{name}-{i}", "detector": "d", "detector_version": 1, "severity": "info", "queue_id": id,
         "queue": name, "window_from": (NOW - timedelta(hours=1)).isoformat(), "window_to": NOW.isoformat(),
         "sentence": "s", "evidence": "select 1"}
        for i in range(n) for name, id in QUEUES.items()
    ]  # fmt: skip
    day = NOW - timedelta(days=1)
    app.pipeline.anomalies.publish(
        [json.dumps(row) for row in rows], detectors=["d"], since=day, until=NOW + timedelta(days=1), run_id=run
    )


def pages(call: Caller, path: str, name: str, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        page = call("GET", f"{path}{'&' if '?' in path else '?'}limit={limit}{after}").json()
        assert len(page[name]) <= limit
        rows += page[name]
        if page["next"] is None:
            return rows
        after = f"&after={page['next']}"


PAGED = {"/v1/metrics/minutes": "minutes", "/v1/consumers": "consumers", "/v1/anomalies": "anomalies"}


def test_without_a_pipeline_run_the_response_has_none(ran: tarry.App, call: Caller) -> None:
    for path, name in {**PAGED, "/v1/metrics/forecasts": "forecasts"}.items():
        body = call("GET", path).json()
        assert (body[name], body["run"]) == ([], None)
        assert call("GET", f"{path}?queue=own").json()["run"] is None
        assert code(call("GET", f"{path}?queue=nowhere")) == (404, "unknown_queue")


def test_minutes_come_in_pages_the_newest_first_with_their_run_and_age(ran: tarry.App, call: Caller) -> None:
    run = fill_minutes(ran, 4)
    for limit in (1, 3, 100):
        rows = pages(call, "/v1/metrics/minutes", "minutes", limit)
        assert [(row["queue"], row["offered"]) for row in rows] == [(name, i) for i in range(4) for name in QUEUES]
        assert {row["run_id"] for row in rows} == {run}
    assert call("GET", "/v1/metrics/minutes").json()["run"]["id"] == run
    TypeAdapter(wire.Minutes).validate_python(call("GET", "/v1/metrics/minutes").json())
    (minute,) = call("GET", f"/v1/metrics/minutes?queue=own&limit=1&until={NOW:%FT%TZ}").json()["minutes"]
    assert (minute["offered"], minute["lag"]) == (1, None)


def test_consumers_come_in_pages_too(ran: tarry.App, call: Caller) -> None:
    fill_hours(ran, 3)
    for limit in (1, 3, 100):
        rows = pages(call, "/v1/consumers", "consumers", limit)
        assert [(row["leased"], row["queue"], row["consumer"]) for row in rows] == [
            (i, name, consumer) for i in range(3) for name in QUEUES for consumer in ("B", "a")
        ]
        assert rows[0]["processing"] == {"p50": 0.5, "p95": 1.0, "p99": 2.0}
    TypeAdapter(wire.Consumers).validate_python(call("GET", "/v1/consumers").json())


def test_what_is_no_page_is_refused(ran: tarry.App, call: Caller) -> None:
    for path in PAGED:
        for after in ("x", "W10", "bm9uc2Vuc2U", "WyIwMDAxLTAxLTAxVDAwOjAwOjAwKzE0OjAwIiwxXQ", "é"):
            assert code(call("GET", f"{path}?after={after}")) == (422, "invalid")
        assert call("GET", f"{path}?until=0001-01-01T00:00:00Z").status_code == 200


def test_a_key_sees_the_rows_of_its_queues_only(ran: tarry.App, guarded: Caller, key: Callable[..., str]) -> None:
    fill_minutes(ran, 3)
    fill_hours(ran, 2)
    raise_anomalies(ran, 2)
    for patterns in (("own",), ("ow*",), ("nothing", "o*")):
        mine = guarded.with_key(key("read", queues=patterns))
        for path, name in PAGED.items():
            rows = pages(mine, path, name, 2)
            assert {row["queue"] for row in rows} == {"own"}
    assert pages(guarded.with_key(key("read", queues=("none",))), "/v1/anomalies", "anomalies", 5) == []
    assert code(mine("GET", "/v1/anomalies?queue=foreign")) == (403, "forbidden")


class TestAnomalies:
    def test_they_are_listed_in_pages_and_filtered(self, ran: tarry.App, call: Caller) -> None:
        raise_anomalies(ran, 3)
        rows = pages(call, "/v1/anomalies", "anomalies", 2)
        assert [row["id"] for row in rows] == [6, 5, 4, 3, 2, 1]
        assert len(pages(call, "/v1/anomalies?queue=own&severity=info&detector=d", "anomalies", 2)) == 3
        assert pages(call, "/v1/anomalies?severity=critical", "anomalies", 2) == []
        TypeAdapter(wire.Anomalies).validate_python(call("GET", "/v1/anomalies").json())

    def test_an_anomaly_is_acknowledged_once(self, ran: tarry.App, guarded: Caller, key: Callable[..., str]) -> None:
        raise_anomalies(ran, 1)
        admin = guarded.with_key(key("admin", "read", queues=("own",)))
        (anomaly,) = admin("GET", "/v1/anomalies").json()["anomalies"]
        seen = admin("POST", f"/v1/anomalies/{anomaly['id']}/ack", {"note": "deploy"}).json()
        assert (seen["acknowledged_by"], seen["note"]) == ("test", "deploy")
        again = admin("POST", f"/v1/anomalies/{anomaly['id']}/ack", {"note": "again"}).json()
        assert again["note"] == "deploy"
        assert admin("GET", "/v1/anomalies?acknowledged=false").json()["anomalies"] == []

    def test_a_foreign_one_is_not_there(self, ran: tarry.App, guarded: Caller, key: Callable[..., str]) -> None:
        raise_anomalies(ran, 1)
        admin = guarded.with_key(key("admin", queues=("own",)))
        foreign = next(anomaly.id for anomaly in ran.pipeline.anomalies.list() if anomaly.queue == "foreign")
        responses = [admin("POST", f"/v1/anomalies/{id}/ack", {}) for id in (foreign, 999)]
        assert [code(response) for response in responses] == [(404, "unknown_anomaly")] * 2
        assert ran.pipeline.anomalies.list(acknowledged=True) == []

    def test_what_is_muted_is_not_raised_until_it_is_unmuted(self, ran: tarry.App, call: Caller) -> None:
        made = call("POST", "/v1/mutes", {"queue": "own", "mute_for": "1h", "reason": "load test"})
        assert (made.status_code, made.json()["queue"]) == (201, "own")
        raise_anomalies(ran, 1)
        assert [row["queue"] for row in call("GET", "/v1/anomalies").json()["anomalies"]] == ["foreign"]
        assert call("GET", "/v1/mutes").json()["mutes"] == [made.json()]
        assert call("DELETE", f"/v1/mutes/{made.json()['id']}").json() == {"id": made.json()["id"], "unmuted": True}
        assert code(call("DELETE", f"/v1/mutes/{made.json()['id']}")) == (404, "unknown_mute")

    def test_a_repeated_mute_is_the_same_mute(self, ran: tarry.App, call: Caller) -> None:
        body = {"queue": "own", "detector": "d", "mute_for": "1h", "reason": "load test"}
        first = call("POST", "/v1/mutes", body).json()
        again = call("POST", "/v1/mutes", {**body, "mute_for": "3h", "reason": "a longer one"}).json()
        assert (again["id"], again["reason"]) == (first["id"], "a longer one")
        assert again["until"] > first["until"]
        other = call("POST", "/v1/mutes", {"queue": "own", "reason": "all of them"}).json()
        assert [mute["id"] for mute in call("GET", "/v1/mutes").json()["mutes"]] == [other["id"], first["id"]]
        for mute in (first, other):
            call("DELETE", f"/v1/mutes/{mute['id']}")
        assert call("POST", "/v1/mutes", body).json()["id"] not in (first["id"], other["id"]), "that one was ended"

    def test_concurrent_equal_mutes_are_one(self, ran: tarry.App) -> None:
        def mute() -> object:
            analytics = ran.store.analytics
            return ran.store.run(analytics.mute(detector=None, queue="own", until=None, reason="load test"))

        all_at_once([mute] * 8)
        mutes = ran.store.run(ran.store.analytics.mutes())
        assert [(mute.queue, mute.reason) for mute in mutes] == [("own", "load test")]

    def test_only_an_unrestricted_key_mutes_every_queue(
        self, ran: tarry.App, guarded: Caller, key: Callable[..., str]
    ) -> None:
        mine, all_ = (guarded.with_key(key("admin", "read", queues=(name,))) for name in ("own", "*"))
        body = {"detector": "d", "reason": "r"}
        assert code(mine("POST", "/v1/mutes", body)) == (403, "forbidden")
        made = all_("POST", "/v1/mutes", body).json()
        assert mine("GET", "/v1/mutes").json()["mutes"] == [made]
        assert code(mine("DELETE", f"/v1/mutes/{made['id']}")) == (404, "unknown_mute")
        assert code(all_("POST", "/v1/mutes", {"reason": "everything"})) == (422, "invalid")


class TestPrometheus:
    def test_messages_are_counted_by_queue_and_state_for_keys_that_may_read_them(
        self, ran: tarry.App, guarded: Caller, key: Callable[..., str]
    ) -> None:
        ran.queue("own").offer("a", 1)
        ran.queue("own").offer("b", 1, after=timedelta(hours=1))
        ran.queue("own").try_poll()
        response = guarded.with_key(key("read", queues=("own",)))("GET", "/metrics")
        assert response.headers["content-type"].startswith("text/plain")
        text = response.text
        assert 'tarry_messages{queue="own",state="delayed"} 1.0' in text
        assert 'tarry_messages{queue="own",state="leased"} 1.0' in text
        assert 'tarry_messages{queue="own",state="ready"} 0.0' in text
        assert 'tarry_queue_lag_seconds{queue="own"} 0.0' in text
        assert "foreign" not in text
        assert 'tarry_pool_connections{state="most"}' in text
        assert code(guarded("GET", "/metrics")) == (401, "unauthorized")

    def test_the_lag_of_a_queue_is_the_age_of_the_oldest_that_is_due(self, ran: tarry.App, call: Caller) -> None:
        ran.queue("own").offer("a", 1, at=datetime.now(UTC) - timedelta(minutes=5))
        (line,) = (
            sample
            for sample in call("GET", "/metrics").text.splitlines()
            if sample.startswith('tarry_queue_lag_seconds{queue="own')
        )
        assert 300 <= float(line.split()[1]) < 420

    def test_requests_are_counted_by_route_and_status_and_not_by_their_path(self, ran: tarry.App, call: Caller) -> None:
        call("GET", "/v1/queues/own")
        call("GET", "/v1/queues/nowhere")
        call("GET", "/v1/nonsense/secret")
        call("INVENTED", "/v1/queues/own")
        text = call("GET", "/metrics").text
        assert 'tarry_http_requests_total{method="GET",route="/v1/queues/{queue}",status="200"} 1.0' in text
        assert 'tarry_http_requests_total{method="GET",route="/v1/queues/{queue}",status="404"} 1.0' in text
        assert 'tarry_http_requests_total{method="GET",route="-",status="404"} 1.0' in text
        assert "secret" not in text
        assert "nowhere" not in text
        assert "INVENTED" not in text


class TestRelay:
    """The same rows as Relay shows them."""

    def test_anomalies_with_their_sums(self, ran: tarry.App, guarded: Caller, key: Callable[..., str]) -> None:
        raise_anomalies(ran, 2)
        body = guarded.with_key(key("read", queues=("own",)))("GET", "/api/queue/activity/anomalies?limit=1").json()
        (row,) = body["anomalies"]
        assert (row["queue"], body["summary"]["by_type"]) == ("own", {row["anomaly"]["type"]: 2})
        assert body["summary"]["total"] == sum(body["summary"]["by_type"].values()) == 2
        assert sum(body["summary"]["by_severity"].values()) == 2
        assert row["anomaly"]["description"]

    def test_consumers_with_what_they_leased(self, ran: tarry.App, guarded: Caller, key: Callable[..., str]) -> None:
        fill_hours(ran, 3)
        mine = guarded.with_key(key("read", queues=("own",)))
        assert mine("GET", "/api/queue/activity/consumers").json() == {
            "stats": {name: {"dequeue_count": 3, "last_dequeue": int(NOW.timestamp())} for name in ("a", "B")}
        }
        assert list(mine("GET", "/api/queue/activity/consumers?consumer_id=a").json()["stats"]) == ["a"]

    def test_the_log_is_the_journal_of_postgresql_too(self, ran: tarry.App, call: Caller) -> None:
        ran.queue("own").offer("a", 1)
        logs = call("GET", "/api/queue/activity?limit=2").json()["logs"]
        assert [(entry["action"], entry["queue"]) for entry in logs] == [
            ("enqueue", "own"),
            ("create_queue", "foreign"),
        ]
