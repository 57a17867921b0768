"""Starts the supervisor and reads its report."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .errors import EmbeddedError
from .supervisor.order import PROBE, Order
from .supervisor.report import BUSY, FAILED, READY

# A file, not `-m tarry…`, which would load the whole package and its driver into a process that lives for days.
ENTRY = Path(__file__).parent / "supervisor" / "__main__.py"


def launch(order: Order, environment: Mapping[str, str], *, deadline: float) -> None:
    """Return when a server is ready or another process is about to start it; raise if the start failed."""
    with _popen(order.to_argv(), environment) as process:
        assert process.stdout is not None  # noqa: S101 (for the type checker: stdout is a pipe)
        said = _read_until_closed(process.stdout.fileno(), deadline)
    if said is None:
        raise EmbeddedError(
            f"PostgreSQL in {order.home} was not ready in time. It may be replaying its log after a crash: see "
            f"{order.layout.log}, and try again."
        )
    verdict, _, message = said.partition("\n")
    if verdict in (READY, BUSY):
        return
    if verdict == FAILED:
        raise EmbeddedError(message.strip())
    raise EmbeddedError(f"The supervisor of PostgreSQL ended without a word of use: {said.strip() or 'nothing at all'}")


def namespaces_allowed(environment: Mapping[str, str]) -> bool:
    """Whether this user may enter a user namespace. Tested in a separate process, because it cannot be undone."""
    with _popen([PROBE], environment) as process:
        process.communicate()
    return process.returncode == 0


def _popen(argv: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(ENTRY), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise EmbeddedError(
            f"No Python to look after PostgreSQL: sys.executable, {sys.executable!r}, does not start ({error}). "
            "Set TARRY_DSN to a server of your own."
        ) from error


def _read_until_closed(pipe: int, deadline: float) -> str | None:
    said = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(pipe, 65536)
        if not chunk:
            return said.decode(errors="replace")
        said += chunk
