"""The benchmarks still run, every scenario for every contender. How fast is none of a test's business."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.contenders import REGISTRY
from benchmarks.plan import SMOKE
from benchmarks.run import run
from benchmarks.scenarios import measures
from benchmarks.targets import Status, verdicts

MEASURES = {
    measure
    for name, value in vars(measures).items()
    if name.isupper() and value != measures.EMPTY
    for measure in ([value] if isinstance(value, str) else value)
}


def test_every_scenario_runs_for_every_contender_and_judges_nothing(database: str, tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), width=140)
    facts, results = run(SMOKE, screen, dsn=database, quiet=True)
    assert set(results.samples) == MEASURES
    for measure in (measures.OFFER_ONE, measures.CONSUME_CROWD, measures.OFFER_BULK, measures.AWAIT_ACK):
        assert set(REGISTRY) <= set(results.samples[measure])
    unable = {name for skipped in results.skipped.values() for name in skipped}
    assert unable.isdisjoint(REGISTRY)
    checks = verdicts(results, SMOKE)
    assert {check.target for check in checks} == {f"P{i}" for i in range(1, 10)} | {f"T{i}" for i in range(5, 12)}
    assert {check.status for check in checks} == {Status.NOT_MEASURED}
    report.print_results(screen, results)
    report.print_targets(screen, checks)
    report.write_json(tmp_path / "bench.json", facts, results, checks)
    assert json.loads((tmp_path / "bench.json").read_text())["environment"]["plan"]["name"] == "smoke"
