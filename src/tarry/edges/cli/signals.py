"""How a process of ours ends: at the first signal it stops in peace, at the second, or at its deadline, it exits."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from datetime import timedelta

from tarry.edges.cli.exits import ExitCode

_log = logging.getLogger("tarry.process")
END_WITHIN_S = 4.5
"""After the signal and the grace: every process ends within five seconds of both, whatever the database or a client does."""
_LOG_WITHIN_S = 0.2


def heed(stop: asyncio.Event, *, first: str, again: str, grace: timedelta = timedelta(0)) -> None:
    """SIGTERM and SIGINT set `stop`; one more of them ends the process at once. `first` and `again` say so in the log.
    `grace`: how long the work under way may take before the process ends."""
    loop = asyncio.get_running_loop()
    heard: list[str] = []  # signals only: whoever else sets `stop` is not one

    def told(name: str) -> None:
        heard.append(name)
        if len(heard) > 1:
            _exit(f"{name} again: {again}")
        end_within(grace)
        _log.info("%s: %s", name, first)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number.name)


def end_within(grace: timedelta = timedelta(0)) -> None:
    """Exit at the deadline, unless the process has ended by then.

    In a thread: an orderly end waits for statements, threads and cancelled tasks, some of them without a limit (asyncio
    waits five minutes for its threads), and the event loop itself may be blocked.
    """
    seconds = grace.total_seconds() + END_WITHIN_S

    def expire() -> None:
        time.sleep(seconds)
        _exit(f"not ended {seconds:g} s after the signal: exiting now; what is held comes back when its lease runs out")

    threading.Thread(target=expire, name="tarry-deadline", daemon=True).start()


def _exit(why: str) -> None:
    def tell() -> None:
        _log.warning(why)
        logging.shutdown()

    telling = threading.Thread(target=tell, daemon=True)  # the reader of the log may be blocked, too
    telling.start()
    telling.join(_LOG_WITHIN_S)
    os._exit(ExitCode.INTERRUPTED)
