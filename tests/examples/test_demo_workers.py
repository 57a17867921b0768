"""The second act of the demo, small: real workers, a provider that is down, dead letters, a redrive with canaries."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import tarry
from examples.demo import workers


def test_every_order_is_charged_once_although_the_provider_was_down(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "CHARGES", 12)
    monkeypatch.setattr(workers, "DUE_WITHIN_S", 0.6)
    monkeypatch.setattr(workers, "DOWN_FROM_S", 0.0)
    monkeypatch.setattr(workers, "DOWN_UNTIL_S", 2.5)
    screen = io.StringIO()
    with tarry.connect(database) as app:
        assert workers.show_workers(Console(file=screen, width=120), app)
        assert app.queues.counts(workers.QUEUE).dead.n == 0
    output = screen.getvalue()
    assert "dead letters of one kind: examples.demo.worker.ProviderDown" in output
    assert "Every order charged, none of them twice." in output
