"""`make bench`, or `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.before import BEFORE
from benchmarks.plan import FULL, QUICK, SMOKE, STANDARD, Plan
from benchmarks.run import run
from benchmarks.scenarios import SCENARIOS
from benchmarks.targets import verdicts


def main(arguments: list[str] | None = None) -> None:
    store, rest = _store(arguments)
    if store == "redis":
        from benchmarks.redis import bench

        bench.main(rest)
        return
    options = _parser().parse_args(rest)
    console = Console(width=None if Console().is_terminal else 140)
    plan = _plan(options)
    facts, results = run(
        plan, console, dsn=options.dsn, only=options.only, contenders=options.contenders, before=options.before
    )
    checks = verdicts(results, plan)
    report.print_results(console, results)
    report.print_targets(console, checks)
    if options.json:
        report.write_json(options.json, facts, results, checks)


def _store(arguments: list[str] | None) -> tuple[str, list[str]]:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--store", choices=("postgresql", "redis"), default="postgresql")
    options, rest = parser.parse_known_args(arguments)
    return options.store, rest


def _plan(options: argparse.Namespace) -> Plan:
    plan: Plan = options.plan.scaled(options.scale)
    if options.held is not None:
        # Turns stay short enough to be interleaved.
        plan = replace(plan, held_s=options.held, held_slices=max(plan.held_slices, round(options.held / 5)))
    if options.rounds is not None:
        plan = replace(plan, rounds=options.rounds)
    return plan


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Tarry against P1 to P9 and T5 to T11."
    )
    size = parser.add_mutually_exclusive_group()
    for plan, what in (
        (QUICK, "about five minutes: to see that it works"),
        (FULL, "everything at the size of the targets"),
        (SMOKE, "seconds: not for figures"),
    ):
        size.add_argument(f"--{plan.name}", dest="plan", action="store_const", const=plan, help=what)
    parser.set_defaults(plan=STANDARD)
    parser.add_argument(
        "--store",
        choices=("postgresql", "redis"),
        help="redis: beside other queues on Redis, with options of its own",
    )
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    parser.add_argument(
        "--only", nargs="+", default=(), choices=list(SCENARIOS), metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}"
    )
    parser.add_argument(
        "--contenders", nargs="+", default=(), metavar="NAME", help="of those only, by the beginning of the name"
    )
    parser.add_argument(
        "--before",
        default=BEFORE,
        metavar="REV",
        help="the commit that P5, P6 and P8 compare with, from this checkout (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, help="number of turns of each contender")
    parser.add_argument(
        "--held", type=float, metavar="SECONDS", help="how long each works under a held snapshot; T6 wants 300"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="times the future, ready and in-flight messages of the plan"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    return parser


if __name__ == "__main__":
    main()
