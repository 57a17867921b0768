"""The supervisor's one message to the process that launched it, which may be dead by then."""

import contextlib
import os

READY = "ready"
BUSY = "busy"
FAILED = "failed"


class StartError(Exception):
    """The server cannot be started; the message is for the user and says what to do."""


class Report:
    """A pipe to the launcher that is used at most once and closed with it."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe

    def send(self, verdict: str, message: str = "") -> None:
        """What comes later goes to the log, which standard error is by then."""
        pipe, self._pipe = self._pipe, None
        # If nobody listens any more, nobody uses the server either, and it will be stopped in the usual way.
        with contextlib.suppress(BrokenPipeError):
            os.write(2 if pipe is None else pipe, f"{verdict}\n{message}\n".encode(errors="replace"))
        if pipe is not None:
            os.close(pipe)
