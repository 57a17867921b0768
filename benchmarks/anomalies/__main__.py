"""`make bench-anomalies`: precision and recall on faults that we injected ourselves."""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from operator import add

from rich.console import Console
from rich.table import Table

from benchmarks.anomalies import faults, others, ours, rules, scores
from benchmarks.anomalies.scores import Score
from tarry.edges.spark.session import session

HELD_OUT = (101, 102, 103)
"""Worlds that no threshold was chosen on; those were 1, 2 and 3."""
WANTED = 0.9


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.anomalies", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=HELD_OUT, help="which worlds (default: %(default)s)")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args(arguments)
    console = Console(width=None if Console().is_terminal else 140)
    spark = session(options.master)
    try:
        levels = _levels(spark, options.seeds, console)
        _print(console, "Statistical detectors, on held-out weeks", levels, kinds=True)
        of_rules = [rules.scores(spark, seed) for seed in options.seeds]
        by_rule = [reduce(add, each) for each in zip(*of_rules, strict=True)]
        _print(console, "Rules, on an injected journal", by_rule, kinds=False)
    finally:
        spark.stop()
    good = levels[0].f1 >= WANTED
    console.print(f"F1 {levels[0].f1:.2f}, wanted {WANTED}: {'reached' if good else 'not reached'}")
    return 0 if good else 1


def _levels(spark: object, seeds: list[int], console: Console) -> list[Score]:
    """Ours first, then the others, each summed over the worlds."""
    contenders = {
        "mean ± deviation, by hour of the week": others.mean_and_deviation_by_hour,
        "mean ± deviation": others.mean_and_deviation,
        "EWMA": others.exponential,
    }
    totals: dict[str, list[Score]] = {}
    for seed in seeds:
        world = faults.world(seed)
        console.print(f"world {seed}: {len(world.minutes):,} minutes, {len(world.faults)} faults in the last week")
        found = [incident for _, incident in ours.found(spark, world)]  # type: ignore[arg-type]
        totals.setdefault("median and MAD", []).append(scores.scored("Tarry: median and MAD", found, world.faults))
        for name, contender in contenders.items():
            totals.setdefault(name, []).append(scores.scored(name, contender(world), world.faults))
    return [reduce(add, each) for each in totals.values()]


def _print(console: Console, title: str, all_scores: list[Score], *, kinds: bool) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("detector")
    shown = faults.KINDS if kinds else ()
    for name in ("faults", "found", "incidents", "false", "precision", "recall", "F1", *shown):
        table.add_column(name, justify="right")
    for score in all_scores:
        counts = (score.faults, score.found, score.incidents, score.false)
        of_kinds = [f"{score.by_kind[kind][0]}/{score.by_kind[kind][1]}" for kind in shown]
        ratios = (score.precision, score.recall, score.f1)
        table.add_row(score.name, *map(str, counts), *(f"{ratio:.2f}" for ratio in ratios), *of_kinds)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
