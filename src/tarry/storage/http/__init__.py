"""A store that is a broker somewhere else: the same verbs, over HTTP."""

from tarry.storage.http.aio import AsyncHttpStore
from tarry.storage.http.sync import HttpStore

__all__ = ["AsyncHttpStore", "HttpStore"]
