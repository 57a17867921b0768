"""`make bench-dashboard`: size and speed of every page, with many messages and events."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.dashboard.fill import Sizes, derive, fill
from benchmarks.dashboard.pages import PATHS, RENDER_MS, SIZE_KB, STATEMENT_MS, Figure, measure
from benchmarks.report import commit
from benchmarks.server import Server, running_server, tuned
from tarry.app import prepare
from tarry.storage.postgres.embedded import EmbeddedSettings, start


def run(dsn: str, sizes: Sizes, rounds: int) -> list[Figure]:
    load(dsn, sizes)
    return asyncio.run(measure(dsn, rounds))


def load(dsn: str, sizes: Sizes) -> None:
    prepare(dsn, migrate=True, allow_unsafe=False)
    began = time.monotonic()
    fill(dsn, sizes)
    asyncio.run(derive(dsn, sizes))
    print(f"{sizes.messages:,} live messages and {sizes.events:,} events loaded in {time.monotonic() - began:.0f} s\n")


@contextmanager
def loaded(sizes: Sizes, data: Path | None) -> Generator[str]:
    """A DSN of a filled database: of this run, or of the server in `data`, which is filled by the first run."""
    if data is None:
        with running_server(None) as server:
            dsn = server.database("dashboard")
            load(dsn, sizes)
            yield dsn
        return
    is_new = not data.exists()
    data.mkdir(parents=True, exist_ok=True)
    with start(EmbeddedSettings(data_dir=data)) as embedded:
        if is_new:
            tuned(Server(embedded.dsn, own=True))
            load(embedded.dsn, sizes)
        yield embedded.dsn


def report(figures: Sequence[Figure]) -> None:
    print(
        f"{'page':58} {'KB':>5} {'p50 ms':>7} {'p95 ms':>7} {'CPU ms':>7} {'stmts':>5} {'stmt ms':>8} {'best':>6}  "
        "slowest statement"
    )
    for figure in figures:
        verdict = f"  MISSED {', '.join(figure.missed)}" if figure.missed else ""
        print(
            f"{figure.path:58} {figure.bytes / 1000:>5.0f} {figure.p50_ms:>7.1f} {figure.p95_ms:>7.1f} {figure.cpu_ms:>7.1f} "
            f"{figure.statements:>5.1f} {figure.slowest_ms:>8.1f} {figure.best_ms:>6.1f}  {figure.slowest}{verdict}"
        )
    print()
    targets = {
        "size": f"page at most {SIZE_KB} KB",
        "render": f"p95 of the server's time below {RENDER_MS} ms",
        "statement": f"p95 of each statement below {STATEMENT_MS} ms",
        "status": "every page is shown",
    }
    for name, text in targets.items():
        missed = [figure.path for figure in figures if name in figure.missed]
        print(f"{'MISSED' if missed else 'MET':7} {text}{': ' if missed else ''}{' '.join(missed)}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="live ones (default %(default)s)")
    parser.add_argument("--events", type=int, default=10_000_000, metavar="N", help="(default %(default)s)")
    parser.add_argument("--queues", type=int, default=10, metavar="N", help="(default %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=20, metavar="N", help="requests per page; 0: only fill (default %(default)s)"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the filled database here, and use it next time")
    parser.add_argument("--only", default="", metavar="TEXT", help="only pages whose paths contain it")
    options = parser.parse_args(arguments)
    sizes = Sizes(
        messages=options.messages,
        events=options.events,
        dead=options.messages // 50,
        queues=options.queues,
        schedules=200,
        anomalies=1_000,
        runs=1_000,
        audits=10_000,
        redrives=1_000,
        bulk_jobs=1_000,
    )
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    with loaded(sizes, options.data) as dsn:
        if options.rounds:
            report(asyncio.run(measure(dsn, options.rounds, [path for path in PATHS if options.only in path])))
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
