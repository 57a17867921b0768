"""The benchmark of the dashboard still runs, and has every screen. How fast is none of a test's business."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.routing import Route

from benchmarks.dashboard.__main__ import report, run
from benchmarks.dashboard.fill import Sizes
from benchmarks.dashboard.pages import PATHS
from benchmarks.dashboard.statement_log import StatementLog
from benchmarks.server import running_server
from tarry.edges.dashboard import screens
from tarry.storage.postgres.embedded.supervisor import run as supervisor

NOT_MEASURED = {"/archive/result"}
"""A file that DuckDB makes of a lake, which the benchmark does not have."""


def test_every_page_is_shown_and_its_statements_are_named(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = Sizes(
        messages=500, events=3_000, dead=100, schedules=3, anomalies=3, runs=5, audits=5, redrives=3, bulk_jobs=3
    )
    with running_server(database) as server:
        figures = run(server.database("dashboard"), sizes, rounds=1)
    assert [figure.path for figure in figures if "status" in figure.missed or "size" in figure.missed] == []
    assert {figure.slowest for figure in figures} & {"rollups/standings", "search/by_due", "journal/recent"}
    report(figures)
    assert "MET     every page is shown" in capsys.readouterr().out


def test_every_page_of_the_dashboard_is_measured() -> None:
    routes = [route for part in screens.PARTS for route in part.screen.routes if isinstance(route, Route)]
    pages = [route for route in routes if "GET" in (route.methods or ()) and not route.path.endswith((".json", ".csv"))]
    paths = [path.split("?")[0].removesuffix(".json") for path in PATHS]
    measured = {next(page.path for page in pages if page.path_regex.match(path)) for path in paths}
    assert {page.path for page in pages} - measured == NOT_MEASURED


def test_statements_are_counted_when_the_log_is_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.log"
    line = "2026-11-19 [{}] LOG:  duration: 1.5 ms  statement: select {}\n"
    path.write_text("".join(line.format(7, n) for n in range(3)))
    log = StatementLog(path)
    assert sum(map(len, log.read().values())) == 3
    with path.open("a") as end:
        end.write(line.format(7, 3))
    monkeypatch.setattr(supervisor, "LOG_LIMIT", 10)
    supervisor.keep_small(path)
    with path.open("a") as end:
        end.write(line.format(7, 4))
    assert sorted(log.read()) == ["select 3", "select 4"]
