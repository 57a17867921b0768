# pyright: basic
"""A million messages archived and verified: `python -m benchmarks.pipeline.archive --help`.

Every message is offered, leased and acked through the library, except for the last ones, which stay live. While the archive
runs a second time over a fresh backlog, the queue goes on working, and its rate with and without the archive is printed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

import tarry
from benchmarks.server import serving
from tarry.app import App
from tarry.edges.spark.jobs import archive, verify
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.verify import VerifyArgs
from tarry.edges.spark.session import session

BATCH = 1_000


def live(app: App, messages: int, *, keep: int) -> None:
    queue = app.queue("orders")
    payload = {"n": "x" * 100}
    for start in range(0, messages, 10_000):
        queue.offer_many([tarry.Message(payload=payload) for _ in range(min(10_000, messages - start))])
        left = min(10_000, messages - start) if start + 10_000 < messages else max(0, messages - start - keep)
        while left > 0 and (deliveries := queue.try_poll_many(min(BATCH, left))):
            queue.ack_many([delivery.hold for delivery in deliveries])
            left -= len(deliveries)


def rate_while(app: App, work: Callable[[], Any]) -> tuple[float, float]:
    """Messages per second, offered and finished in batches of 100, for as long as the work takes; and how long that was."""
    stop = threading.Event()
    done = 0

    def loop() -> None:
        nonlocal done
        queue = app.queue("beside")
        while not stop.is_set():
            queue.offer_many([tarry.Message(payload=1) for _ in range(100)])
            queue.ack_many([delivery.hold for delivery in queue.try_poll_many(100)])
            done += 100

    worker = threading.Thread(target=loop)
    started = time.monotonic()
    worker.start()
    work()
    stop.set()
    worker.join()
    spent = time.monotonic() - started
    return done / spent, spent


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.archive", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--keep", type=int, default=50_000, help="messages that stay live")
    parser.add_argument("--tasks", type=int, default=2, help="cores of Spark")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    options = parser.parse_args(arguments)
    console = Console(width=None if Console().is_terminal else 120)
    with serving(options.dsn) as server, tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake:
        dsn = server.database("archive")
        with tarry.connect(dsn, migrate=True) as app:
            live(app, options.messages, keep=options.keep)
            spark = session(f"local[{options.tasks}]")
            spark.range(1).count()
            first = archive.run(spark, app, ArchiveArgs(lake=lake))
            console.print(first.line())
            console.print(
                f"  {first.rows / first.seconds:,.0f} events/s, {first.bytes / first.rows:.1f} bytes per event"
            )
            found = verify.run(spark, app, VerifyArgs(lake=lake))
            console.print(found.line())
            live(app, options.messages // 5, keep=0)
            alone = [rate_while(app, lambda: time.sleep(5))[0] for _ in range(3)]
            beside, spent = rate_while(app, lambda: archive.run(spark, app, ArchiveArgs(lake=lake)))
            again = [rate_while(app, lambda: time.sleep(5))[0] for _ in range(3)]
            spark.stop()
    usual = statistics.median([*alone, *again])
    console.print(
        f"The queue: {usual:,.0f} messages/s alone, {beside:,.0f} while the archive ran ({spent:.0f} s): "
        f"{beside / usual:.2f} ×. They share {options.tasks} cores; what matters is that it does not decay: "
        f"{statistics.median(again):,.0f} afterwards."
    )


if __name__ == "__main__":
    main()
