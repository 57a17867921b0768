"""redis-py errors: which ones are transient, and the Tarry errors that callers get."""

from __future__ import annotations

from redis import exceptions

from tarry.core.errors import InvalidState, StoreUnavailable, TarryError

_REFUSED = (
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.MovedError,
    exceptions.AskError,
)
"""The script was not executed, and the same request may succeed later. LOADING is a `ConnectionError`."""
_REFUSED_TEXTS = ("BUSY ", "NOREPLICAS", "UNBLOCKED")
_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
"""The script may have been executed. It is repeated with the same request number."""
_LOST_CLUSTER = (exceptions.ClusterError, exceptions.RedisClusterException, exceptions.SlotNotCoveredError)


class NotReplicated(exceptions.ConnectionError):
    """The primary has the change, but too few replicas confirmed it. The repeated request waits for them again."""


def is_transient(error: Exception) -> bool:
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return False
    return isinstance(error, (*_LOST, *_LOST_CLUSTER, *_REFUSED)) or str(error).startswith(_REFUSED_TEXTS)


def translated(error: Exception, tries: int) -> TarryError:
    if is_transient(error):
        again = "" if tries <= 1 else f", after {tries} tries"
        hint = "check the address, and that the server runs"
        return StoreUnavailable(f"Redis is not available{again}: {error}", hint=hint)
    if isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith(("OOM", "MISCONF")):
        return StoreUnavailable(f"Redis accepts no writes: {error}", hint="free memory, or repair its disk")
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)):
        return InvalidState(f"Redis refused the user of this URL: {error}", hint="check user, password and ACL")
    return InvalidState(f"Redis refused a command: {error}")
