"""Idempotency keys: a repeated request gets the stored response of the first one."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class IdempotencyKey(NamedTuple):
    """A repeatable request: its caller, the caller's key, and a fingerprint of its content."""

    caller: str
    key: str
    fingerprint: bytes


class StoredResponse(NamedTuple):
    """A response that is stored to be sent again unchanged."""

    status: int
    body: bytes
    replayed: bool = False
    """Nothing was executed: this is the response to an earlier request."""


IdempotentCall = Callable[[Any], StoredResponse]
"""The work of a request, with a connection for `conn=`."""
AsyncIdempotentCall = Callable[[Any], Awaitable[StoredResponse]]
