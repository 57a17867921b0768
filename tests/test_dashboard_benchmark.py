"""The benchmark of the dashboard still runs, and has every screen. How fast is none of a test's business."""

from __future__ import annotations

import pytest

from benchmarks.dashboard.__main__ import report, run
from benchmarks.dashboard.fill import Sizes
from benchmarks.dashboard.pages import PATHS
from benchmarks.server import running_server
from tarry.edges.dashboard import screens


def test_every_page_is_shown_and_its_statements_are_named(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = Sizes(messages=500, events=3_000, dead=100, schedules=3, anomalies=3, runs=5, audits=5, redrives=3)
    with running_server(database) as server:
        figures = run(server.database("dashboard"), sizes, rounds=1)
    assert [figure.path for figure in figures if "status" in figure.missed or "size" in figure.missed] == []
    assert {part.screen.path for part in screens.PARTS} <= set(PATHS)
    assert {figure.slowest for figure in figures} & {"rollups/standings", "search/by_due", "journal/recent"}
    report(figures)
    assert "MET     every page is shown" in capsys.readouterr().out
