"""How a command ends: exit codes, and which error means which. docs/reference/exit-codes.md says the same to users."""

from __future__ import annotations

from enum import IntEnum

from tarry.core import errors


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    PARTLY = 6
    CHECK_FAILED = 7
    INTERRUPTED = 130


class CommandFailed(errors.TarryError):
    """A command cannot do what it was asked to, and says with which code it ends."""

    def __init__(self, message: str, code: ExitCode, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class Usage(CommandFailed):
    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, ExitCode.USAGE, hint=hint)


class NotFound(CommandFailed):
    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, ExitCode.NOT_FOUND, hint=hint)


class Conflicting(CommandFailed):
    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, ExitCode.CONFLICT, hint=hint)


class ReaderGone(Exception):
    """Whoever read our output has stopped (`| head`): nobody is left to tell."""


class Interrupted(Exception):
    """Ctrl-C."""


# The first that fits; what is not here is an ordinary failure.
_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (errors.InvalidInput, ExitCode.USAGE),
    (errors.UnknownQueue, ExitCode.NOT_FOUND),
    (errors.UnknownSchedule, ExitCode.NOT_FOUND),
    (errors.UnknownRedrive, ExitCode.NOT_FOUND),
    (errors.Refused, ExitCode.CONFLICT),
    (errors.StoreUnavailable, ExitCode.UNREACHABLE),
    (errors.EmbeddedError, ExitCode.UNREACHABLE),
    (Interrupted, ExitCode.INTERRUPTED),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
)


def code_of(error: BaseException) -> ExitCode:
    if isinstance(error, CommandFailed):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
