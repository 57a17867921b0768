"""Exit codes, and the code of each error; documented in docs/reference/exit-codes.md."""

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


class CommandFailed(errors.TarryError): ...


class Usage(errors.TarryError): ...


class NotFound(errors.TarryError): ...


class Conflicting(errors.TarryError): ...


class ReaderGone(Exception):
    """The reader of stdout closed the pipe (`| head`)."""


class Interrupted(Exception):
    """Ctrl-C."""


# The first match counts; other errors are FAILED.
_CODES: tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...] = (
    ((errors.InvalidInput, Usage), ExitCode.USAGE),
    ((errors.UnknownQueue, errors.UnknownSchedule, errors.UnknownRedrive, NotFound), ExitCode.NOT_FOUND),
    ((errors.InvalidState, Conflicting), ExitCode.CONFLICT),
    ((errors.StoreUnavailable, errors.EmbeddedError), ExitCode.UNREACHABLE),
    ((Interrupted, KeyboardInterrupt), ExitCode.INTERRUPTED),
)


def code_of(error: BaseException) -> ExitCode:
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.FAILED)
