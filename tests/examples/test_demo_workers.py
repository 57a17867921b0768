"""The second act of the demo, small: real workers, a provider that is down, dead letters, a redrive with canaries."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import tarry
from tarry.edges.cli import demo_workers


def test_every_order_is_charged_once_although_the_provider_was_down(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_workers, "CHARGES", 12)
    monkeypatch.setattr(demo_workers, "DUE_WITHIN_S", 0.6)
    monkeypatch.setattr(demo_workers, "DOWN_FROM_S", 0.0)
    monkeypatch.setattr(demo_workers, "DOWN_UNTIL_S", 2.5)
    screen = io.StringIO()
    with tarry.connect(database) as app:
        assert demo_workers.show_workers(Console(file=screen, width=120), app)
        assert app.queues.counts(demo_workers.QUEUE).dead.n == 0
    said = screen.getvalue()
    assert "dead letters of one kind: tarry.edges.cli.demo_worker.ProviderDown" in said
    assert "Every order charged, none of them twice." in said
