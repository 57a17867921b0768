"""How a process of ours ends: once told it stops in peace, told again it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from tarry.edges.cli.exits import ExitCode

_log = logging.getLogger("tarry.process")


def heed(stop: asyncio.Event, *, first: str, again: str) -> None:
    """SIGTERM and SIGINT set `stop`; one more of them ends the process at once. `first` and `again` say so in the log."""
    loop = asyncio.get_running_loop()
    heard: list[str] = []  # signals only: whoever else sets `stop` is not one

    def told(name: str) -> None:
        heard.append(name)
        if len(heard) > 1:
            _log.warning("%s again: %s", name, again)
            logging.shutdown()
            os._exit(ExitCode.INTERRUPTED)
        _log.info("%s: %s", name, first)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number.name)
