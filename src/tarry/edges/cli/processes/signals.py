"""Signal handling of long-running processes: the first signal stops them, a second one or the deadline kills them."""

import asyncio
import logging
import os
import signal
import threading
import time
from datetime import timedelta

from tarry.edges.cli.exit_codes import ExitCode

_log = logging.getLogger("tarry.process")
END_WITHIN_S = 4.5
"""After signal and grace. A process exits within five seconds, even if the database or a client hangs."""
_LOG_WITHIN_S = 0.2


def stop_on_signals(
    *, first: str = "stopping", again: str = "ending at once", grace: timedelta = timedelta(0)
) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; a second signal exits immediately. `first` and `again` are logged.

    `grace`: how long running work may take before the process exits.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    received: list[str] = []  # `stop` may be set without a signal

    def handle(name: str) -> None:
        received.append(name)
        if len(received) > 1:
            _exit(f"{name} again: {again}")
        end_within(grace)
        _log.info("%s: %s", name, first)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number.name)
    return stop


def end_within(grace: timedelta = timedelta(0)) -> None:
    """Exit at the deadline if the process is still running.

    Runs in a thread: an orderly shutdown waits for statements, threads and cancelled tasks, partly without a limit (asyncio
    waits five minutes for its threads), and the event loop may be blocked.
    """
    seconds = grace.total_seconds() + END_WITHIN_S

    def expire() -> None:
        time.sleep(seconds)
        _exit(f"still running {seconds:g} s after the signal: exiting; leased messages return when their leases expire")

    threading.Thread(target=expire, name="tarry-deadline", daemon=True).start()


def _exit(why: str) -> None:
    def log() -> None:
        _log.warning(why)
        logging.shutdown()

    logging_thread = threading.Thread(target=log, daemon=True)  # the reader of the log may be blocked
    logging_thread.start()
    logging_thread.join(_LOG_WITHIN_S)
    os._exit(ExitCode.INTERRUPTED)
