"""Error texts for exceptions of handlers and decoders."""

import logging
import traceback

from tarry.core.limits import clip_error

_log = logging.getLogger("tarry")


def described(error: BaseException) -> str:
    """The summary of an exception, then its traceback."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    return summary + "\n\n" + "".join(traceback.format_exception(error)).strip()


def decoder_error(key: str, error: Exception) -> str:
    """The error to store for a message whose decoder raised. Logged, because the poll does not raise it."""
    _log.warning("the decoder raised for message %r, which is retried: %s: %s", key, type(error).__name__, error)
    return clip_error(described(error))
