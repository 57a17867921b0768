"""`make bench-pipeline`: the source and the sink beside Spark's own ways, rounds on a day of events, its files, five million
messages archived and verified, and the queue beside the pipeline.
"""

from __future__ import annotations

import argparse
import os
import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from rich.console import Console

from benchmarks.pipeline import archive, files, queue, rounds, sink, source
from benchmarks.pipeline.server import on_tcp
from benchmarks.report import commit
from benchmarks.server import Server
from tarry.edges.spark.session import session
from tarry.edges.spark.source.reader import register

JAR = Path("/usr/share/java/postgresql.jar")
PARTS = {
    "source": source.run,
    "sink": sink.run,
    "rounds": rounds.run,
    "files": files.run,
    "archive": archive.run,
    "queue": queue.run,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    events: int
    rows: int
    messages: int
    rounds: int
    bases: tuple[int, ...]
    """Events that are there before the measured rounds."""
    news: int = 10_000
    minutes: int = 144
    """Rounds of which the files are counted."""
    backlog: int = 300_000
    """Messages that the pipeline works through while the queue is used."""
    past_days: int = 4
    """Before the rounds, so that there are usual values to compare with."""


FULL = Sizes(events=3_000_000, rows=200_000, messages=5_000_000, rounds=3, bases=(100_000, 1_000_000, 10_000_000))
QUICK = Sizes(
    events=60_000, rows=20_000, messages=20_000, rounds=1, bases=(3_000, 30_000), news=1_000, minutes=9, backlog=4_000
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=list(PARTS), choices=list(PARTS), metavar="PART", help="of %(choices)s"
    )
    parser.add_argument(
        "--quick", dest="sizes", action="store_const", const=QUICK, default=FULL, help="to see that it works"
    )
    parser.add_argument("--messages", type=int, help="so many live and are archived, instead of five million")
    parser.add_argument(
        "--bases", type=int, nargs="+", help="events before the rounds, instead of 0.1, 1 and 10 million"
    )
    parser.add_argument("--backlog", type=int, help="messages to work through beside the queue, instead of 300,000")
    parser.add_argument("--minutes", type=int, help="rounds whose files are counted, instead of 144")
    parser.add_argument("--rounds", type=int, help="measured turns of each contender, or rounds, instead of three")
    parser.add_argument(
        "--cores", type=int, default=2, help="of Spark, which are also the connections of each contender"
    )
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    parser.add_argument("--jdbc-jar", type=Path, default=JAR)
    options = parser.parse_args(arguments)
    sizes = options.sizes if options.messages is None else replace(options.sizes, messages=options.messages)
    sizes = sizes if options.bases is None else replace(sizes, bases=tuple(options.bases))
    sizes = sizes if options.rounds is None else replace(sizes, rounds=options.rounds)
    sizes = sizes if options.minutes is None else replace(sizes, minutes=options.minutes)
    sizes = sizes if options.backlog is None else replace(sizes, backlog=options.backlog)
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    with on_tcp(options.dsn) as server:
        server.check_durable()
        why = without_jdbc(options.jdbc_jar, server.dsn)
        _print_environment(console, server, options)
        if why:
            console.print(why)
        spark = session(f"local[{options.cores}]", {} if why else {"spark.jars": str(options.jdbc_jar)})
        register(spark)
        try:
            for name in options.only:
                console.rule(name)
                PARTS[name](console, spark, server.database(name), sizes, options.cores, jdbc=why is None)
        finally:
            spark.stop()
    console.print(f"Load at the end: {os.getloadavg()[0]:.1f}")


def without_jdbc(jar: Path, dsn: str) -> str | None:
    """Why there is no comparison with it, in one sentence."""
    if not jar.exists():
        return f"Without JDBC: {jar} is not there (Debian: apt install libpostgresql-jdbc-java)."
    if str(conninfo_to_dict(dsn).get("host") or "/").startswith("/"):
        return "Without JDBC: its driver wants TCP, and this server is reached by a socket; name a host in --dsn."
    return None


def _print_environment(console: Console, server: Server, options: argparse.Namespace) -> None:
    import pyspark

    settings = server.settings()
    console.print(
        f"Tarry's pipeline, {commit()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {os.cpu_count()} cores (Spark uses "
        f"{options.cores}), load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, Spark {pyspark.__version__}, "
        f"PostgreSQL {settings['server_version']}"
    )
    if os.getloadavg()[0] > 0.3 * (os.cpu_count() or 1):
        console.print("The machine is busy: trust ratios before rates.")


if __name__ == "__main__":
    main()
