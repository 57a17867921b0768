"""What `tarry serve` runs, apart, because it imports what the rest of the command line does without."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

from tarry.app import connect_async
from tarry.core.settings import StoreSettings
from tarry.edges.cli.session import Session
from tarry.edges.cli.signals import heed
from tarry.edges.cli.text import shown, without_secrets
from tarry.edges.http.connections import raise_descriptor_limit
from tarry.edges.http.server import bind, check_bind, serve

_SETTINGS = StoreSettings(create_queues=False, pool_size=10)


async def run(
    cli: Session, host: str, port: int, rate: float | None, grace: timedelta, *, sweeper: bool, access_log: bool
) -> None:
    stop = asyncio.Event()
    heed(stop, first="stopping", again="ending at once", grace=grace)
    async with connect_async(cli.dsn, settings=_SETTINGS) as app:
        settings = replace(await check_bind(app, host), requests_per_s=rate, grace=grace)
        raise_descriptor_limit(settings.connections)
        listening = bind(host, port)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listening.getsockname()[1]}"
        _log_to_stderr(logging.INFO if access_log else logging.WARNING)
        async with app.sweeper() if sweeper else nullcontext():
            await serve(app, [listening], settings, stop, lambda: cli.note(f"Tarry answers at {url}"))
    cli.note("stopped")


class _Escaped(logging.Formatter):
    """Errors quote what clients sent: control characters are escaped, as in every output of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(shown, without_secrets(super().format(record)).split("\n")))


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Escaped("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name in ("tarry", "uvicorn"):
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("tarry.http.access").setLevel(level)
