"""The comparison with other queues: its agents on a real server, and how it judges."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import report
from benchmarks.peers.contenders import contenders
from benchmarks.peers.scenarios import SCENARIOS, Bench, Clock, Figure, Plan, Results, empty_before
from benchmarks.server import running_server
from benchmarks.targets import Status

SMALL = Plan(rounds=1, seconds=0.1, consumers=(1,), concurrency=(4,), late=3, in_flight=200)


def test_tarry_takes_part_in_every_quick_scenario(tmp_path: Path) -> None:
    ours = [contender for contender in contenders(None, None) if contender.name in ("Tarry", "pgmq")]
    with running_server(None) as server:
        bench = Bench(SMALL, server, ours, tmp_path / "agents.log", lambda text: None)
        for scenario in ("produce", "consume", "stream", "workers", "lateness", "in-flight"):
            SCENARIOS[scenario](bench)
    assert len(bench.results.figures) == 10
    assert all("Tarry" in by_name for by_name in bench.results.figures.values())
    # The rate at which messages are sent is no figure of a delay.
    late = bench.results.figures["lateness, idle"]["Tarry"][0]
    assert (late.rate, late.p99_ms is None) == (0.0, False)
    # What cannot be had is named with its reason, not left out.
    assert all("give its SQL file" in missing["pgmq"] for missing in bench.results.missing.values())


def results(**rates: list[float]) -> Results:
    measured = {name: [Figure(n=int(rate), wall_s=1.0) for rate in turns] for name, turns in rates.items()}
    return Results({"produce one": measured})


def status(measured: Results) -> Status:
    (check,) = [check for check in report.targets(measured) if check.formula == "produce one / PgQueuer"]
    assert check.target == "P2"
    return check.status


def test_a_target_is_met_or_missed_by_the_ratio_within_the_rounds() -> None:
    assert status(results(Tarry=[240, 300], PgQueuer=[100, 150])) is Status.MET
    assert status(results(Tarry=[110, 110], PgQueuer=[100, 100])) is Status.MISSED
    assert status(Results()) is Status.NOT_MEASURED


def test_a_ratio_to_a_contender_that_collapsed_is_void() -> None:
    assert status(results(Tarry=[1_000, 1_000], PgQueuer=[900, 100])) is Status.VOID


def test_what_either_side_does_better_is_listed_and_a_void_ratio_is_named() -> None:
    rates = {"Tarry": [100.0, 100.0], "fast": [200.0, 200.0], "slow": [50.0, 50.0], "same": [101.0, 99.0]}
    rows = report.comparisons(results(**rates, wild=[10.0, 100.0]))
    (row,) = [row for row in rows if row[:2] == ("produce one", "messages/s")]
    assert row[2:] == ("slow 2.00 ×", "fast 2.00 ×", "same", "wild (wild collapsed)")


def test_a_slow_down_is_compared_with_that_of_the_peers() -> None:
    before, after = empty_before("9 future"), "batches of 100, 9 future"
    costs = {before: {"Tarry": 10.0, "PgQueuer": 20.0}, after: {"Tarry": 20.0, "PgQueuer": 120.0}}
    measured = {
        measure: {name: [Figure(n=100, wall_s=1.0, backend_us=cost)] for name, cost in by_name.items()}
        for measure, by_name in costs.items()
    }
    assert report.comparisons(Results(measured))[-1][:3] == (after, "slow-down (Tarry 2.00 ×)", "PgQueuer 3.00 ×")


def test_the_time_of_a_run_is_shared_and_every_scenario_has_some() -> None:
    clock = Clock(1.0, ["produce", "consume", "death"])
    clock.begin("produce")
    assert 5 < clock.left_s < 30
    clock.divide(2)
    clock.begin_part()
    first = clock.left_s
    clock.begin_part()
    assert clock.left_s > first  # the second part also has what the first left
    clock.begin("death")
    assert clock.left_s > 0
    assert " left" in str(clock)


def test_two_runs_are_compared_from_their_files(tmp_path: Path) -> None:
    for name, rate in (("a", 100.0), ("b", 150.0)):
        facts = {"commit": name, "date": "2026-11-16"}
        (tmp_path / f"{name}.json").write_text(report.to_json(facts, results(Tarry=[rate])))
    assert "100 → 150 (× 1.50)" in report.compared(tmp_path / "a.json", tmp_path / "b.json")


def test_the_plot_shows_every_contender() -> None:
    drawn = report.svg(results(Tarry=[1_000], PgQueuer=[500]))
    assert drawn.count("<rect") == 2
    assert 'class="ours"' in drawn
