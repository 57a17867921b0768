"""Requests that are carried out once, however often they are said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class Once(NamedTuple):
    """A request that may be said again: by whom, under which key of theirs, and what it asks for."""

    caller: str
    key: str
    fingerprint: bytes


class Answered(NamedTuple):
    """What was answered, to be said again as it is."""

    status: int
    body: bytes
    replayed: bool = False
    """Nothing was done: this is the answer to the same request, said before."""


Doing = Callable[[Any], Answered]
"""Work that is done once, with a connection for `conn=`."""
AsyncDoing = Callable[[Any], Awaitable[Answered]]
