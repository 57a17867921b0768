"""The Grafana dashboard and the alert rules name metrics that brokers and workers have."""

from __future__ import annotations

import asyncio
import json
import re
from importlib.resources import files

import httpx
from prometheus_client import generate_latest

from tarry import Message, Worker
from tarry.app import connect_async
from tarry.edges.http.server import running_broker
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.telemetry import Metrics
from tarry.testing import drain, memory_app

_METRIC = re.compile(r"\btarry_[a-z_]+\b")


def _file(name: str) -> str:
    return files("tarry.edges.grafana").joinpath(name).read_text()


async def _broker_metrics(dsn: str) -> str:
    async with connect_async(dsn) as app, running_broker(app, BrokerSettings(anonymous=True)) as url:
        await app.queue("orders").offer("key", {})
        async with httpx.AsyncClient() as client:
            await client.get(f"{url}/healthz")
            return (await client.get(f"{url}/metrics")).text


def _worker_metrics() -> str:
    worker = Worker()
    metrics = Metrics(worker)

    @worker.handler("orders")
    def handle(order: int) -> None:  # pyright: ignore[reportUnusedFunction]
        if order:
            raise ValueError

    with memory_app() as app:
        app.queue("orders").offer_many([Message(key=f"k{i}", payload=i) for i in range(2)])
        drain(worker, app)
    return generate_latest(metrics.registry).decode()


def test_every_metric_of_the_dashboard_and_the_alerts_exists(database: str) -> None:
    text = asyncio.run(_broker_metrics(database)) + _worker_metrics()
    exported = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}
    for name in ("dashboard.json", "alerts.yml"):
        used = set(_METRIC.findall(_file(name)))
        assert used, name
        assert used <= exported, f"{name}: {sorted(used - exported)} do not exist"


def test_the_labels_that_panels_and_rules_group_by_exist(database: str) -> None:
    text = asyncio.run(_broker_metrics(database))
    assert re.search(r'tarry_messages\{queue="orders",state="ready"\}', text)
    assert 'tarry_pool_connections{state="idle"}' in text
    assert re.search(r'tarry_http_requests_total\{[^}]*status="200"', text)


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(_file("dashboard.json"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


def test_every_alert_has_a_severity_and_a_summary() -> None:
    rules = re.split(r"(?=- alert:)", _file("alerts.yml"))[1:]
    assert len(rules) >= 5
    for rule in rules:
        assert re.search(r"severity: (warning|critical)", rule)
        assert "summary:" in rule
