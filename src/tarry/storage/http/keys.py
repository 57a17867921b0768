"""Requests about API keys. The broker draws their text, so this is not `SecurityRole`."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tarry.core.security.api_keys import ApiKey, IssuedKey
from tarry.storage.http.call import Call, Op, fetch, fetch_unless, operation
from tarry.wire import keys as wire

Keys = list[ApiKey]
Data = dict[str, Any]


class HttpKeys:
    @operation
    def create(
        self, name: str, actions: Iterable[str], queues: Sequence[str] = ("*",), *, expires_for: timedelta | None = None
    ) -> Op[IssuedKey]:
        """If a response is lost and the request is repeated, there is a second key, whose text is lost: revoke it."""
        allowed: Any = [*actions]  # validated by the broker
        body = wire.KeyRequest(name=name, actions=allowed, queues=[*queues], expires_for=expires_for)
        issued = yield from fetch(Data, Call("POST", "/v1/keys", body))
        return IssuedKey(_key(issued), issued["key"])

    @operation
    def list(self) -> Op[Keys]:
        return [_key(key) for key in (yield from fetch(Data, Call("GET", "/v1/keys")))["keys"]]

    @operation
    def revoke(self, id: str) -> Op[ApiKey | None]:
        if not id.isalnum():
            return None
        key = yield from fetch_unless("unknown_key", Data, Call("DELETE", f"/v1/keys/{id}"))
        return None if key is None else _key(key)


def _key(data: Data) -> ApiKey:
    return msgspec.convert({**data, "secret_hash": b""}, ApiKey, strict=False)  # it never leaves the database
