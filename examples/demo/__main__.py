"""`make demo`: Tarry at work, on its dashboard. The database is the demo's own, whatever the environment names."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

from rich.console import Console

from examples.demo.provider import Provider
from examples.demo.story import Stage, child, play, send_emails, stopped
from examples.demo.summary import summarize
from examples.demo.worker import HELLO, PORT
from examples.home import own_home
from tarry.app import default_lake
from tarry.core.errors import TarryError
from tarry.edges.cli.processes.broker import dev_parts
from tarry.edges.cli.processes.signals import stop_on_signals
from tarry.edges.cli.processes.started import running_for_s
from tarry.http import AsyncClient

SECONDS = 60.0
GRACE = timedelta(seconds=10)


def main(args: list[str]) -> int:
    given = options(args)
    try:
        page = None if given.no_pipeline else default_lake().with_name("demo-report.html")
        with own_home("tarry-demo-"):
            return asyncio.run(run(given.seconds or SECONDS, given.port, page, stays=given.stays))
    except TarryError as error:
        sys.stderr.write(f"error: {error}\nhint: {error.hint}\n")
        return 1


def options(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description="Show Tarry at work on an embedded PostgreSQL.")
    default = os.environ.get("DEMO_SECONDS") or None
    parser.add_argument(
        "--seconds", type=_seconds, default=default, help="end after about this long; else DEMO_SECONDS"
    )
    parser.add_argument("--port", type=int, default=8080, help="of the dashboard; a free one if it is taken")
    parser.add_argument("--no-pipeline", action="store_true", help="without Spark")
    given = parser.parse_args(args)
    given.stays = given.seconds is None and sys.stdout.isatty()
    return given


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


async def run(seconds: float, port: int, page: Path | None, *, stays: bool) -> int:
    """Play the story; with a terminal, stay until Ctrl-C. 0 if nothing was lost, doubled or early, and every job succeeded.

    `page`: for the report of the pipeline; None: without the pipeline."""
    console, stop = Console(), stop_on_signals(grace=GRACE)
    console.print("Starting an embedded PostgreSQL …", style="dim")
    with Provider().running() as provider:
        async with dev_parts(None, _free(port), "demo") as (app, url), AsyncClient(url) as client:
            os.environ |= {"TARRY_DSN": app.dsn or "", PORT: str(provider.port)}  # for the processes of the demo
            stage = Stage(app, client, f"{url}/dashboard/", provider, console, seconds)
            with await asyncio.to_thread(urlopen, stage.pages):
                _welcome(stage, url)
            story = asyncio.create_task(_story(stage, page, stays=stays))
            emails = asyncio.create_task(send_emails(stage))
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({story, stopping}, return_when=asyncio.FIRST_COMPLETED)
                return await story if story.done() else 0
            finally:
                for task in (story, emails, stopping):
                    task.cancel()
                await asyncio.wait({story, emails, stopping})
                await stopped(stage.children)


async def _story(stage: Stage, page: Path | None, *, stays: bool) -> int:
    now, console = await stage.app.store.run(stage.app.store.queues.now()), stage.console
    pipeline = page and await child(stage, "examples.demo.pipeline", now.isoformat(), str(page))
    await play(stage)
    whole = await summarize(stage)
    if pipeline:
        stage.show("the data pipeline archives and analyses all events (Spark)", "pipeline")
        pipeline.stop()
        whole = not await pipeline.process.wait() and whole
    if stays:
        console.print(f"\n[bold]Look around: {stage.pages}[/]  Ctrl-C stops everything.")
        await asyncio.Event().wait()
    return int(not whole)


def _welcome(stage: Stage, url: str) -> None:
    body = '{"key": "mine", "payload": "Hello!", "after": "20s"}'
    stage.console.print(
        f"""
  [bold]{stage.pages}[/]   the dashboard

  curl {url}/v1/queues/{HELLO}/messages -d '{body}'
  offers a message of yours: {stage.pages}queues/{HELLO}/messages/mine

  The first page was there after {running_for_s():.1f} s. Ctrl-C stops everything.
""",
        highlight=False,
        soft_wrap=True,
    )


def _free(port: int) -> int:
    """The port, or 0, for any, if another program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
