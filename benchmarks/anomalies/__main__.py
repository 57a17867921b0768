"""`make bench-anomalies`: precision and recall on faults that we injected ourselves."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.anomalies import faults, others, ours, rules, scores
from benchmarks.anomalies.scores import Score
from tarry.edges.spark.session import session

HELD_OUT = (101, 102, 103)
"""Worlds that no threshold was chosen on, neither ours nor theirs."""
TUNED_ON = (1, 2, 3)
REQUIRED = 0.9


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
        _print(console, "Rules, on an injected journal", rules.scores(spark, options.seeds[0]), kinds=False)
    finally:
        spark.stop()
    good = levels[0].f1 >= REQUIRED
    console.print(f"F1 {levels[0].f1:.2f}, required {REQUIRED}: {'reached' if good else 'not reached'}")
    return 0 if good else 1


def _levels(spark: SparkSession, seeds: Sequence[int], console: Console) -> list[Score]:
    """Ours first, then the others, each summed over the worlds."""
    worlds = [faults.world(seed) for seed in seeds]
    per_world: list[Score] = []
    for seed, world in zip(seeds, worlds, strict=True):
        console.print(f"world {seed}: {len(world.minutes):,} minutes, {len(world.faults)} faults in the last week")
        incidents = [incident for _, incident in ours.detected_incidents(spark, world)]
        per_world.append(scores.scored("Tarry: median and MAD", incidents, world.faults))
    return [reduce(add, per_world), *others.compared(worlds, [faults.world(seed) for seed in TUNED_ON])]


def _print(console: Console, title: str, all_scores: list[Score], *, kinds: bool) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("detector")
    shown = faults.KINDS if kinds else ()
    for name in ("faults", "found", "incidents", "false", "precision", "recall", "F1", *shown):
        table.add_column(name, justify="right")
    for score in all_scores:
        counts = (score.faults, score.detected, score.incidents, score.false)
        of_kinds = [f"{score.by_kind[kind][0]}/{score.by_kind[kind][1]}" for kind in shown]
        ratios = (score.precision, score.recall, score.f1)
        table.add_row(score.name, *map(str, counts), *(f"{ratio:.2f}" for ratio in ratios), *of_kinds)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
