"""A store that is a broker on another machine: the same operations, over HTTP."""

from tarry.storage.http._sync.store import HttpStore
from tarry.storage.http.store import AsyncHttpStore

__all__ = ["AsyncHttpStore", "HttpStore"]
