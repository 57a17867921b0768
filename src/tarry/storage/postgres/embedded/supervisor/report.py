"""The supervisor's single message to the process that launched it, which may be dead by then."""

import contextlib
import os

READY = "ready"
BUSY = "busy"
FAILED = "failed"


class StartError(Exception):
    """The server cannot be started; the message is for the user and contains a remedy."""


class Report:
    """A pipe to the launcher that is used at most once and then closed."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe

    def send(self, verdict: str, message: str = "") -> None:
        """Send the verdict. Later messages go to standard error, which is the log by then."""
        pipe, self._pipe = self._pipe, None
        # If the launcher is gone, it does not use the server, which will then stop as usual.
        with contextlib.suppress(BrokenPipeError):
            os.write(2 if pipe is None else pipe, f"{verdict}\n{message}\n".encode(errors="replace"))
        if pipe is not None:
            os.close(pipe)
