"""API keys through a broker, under the names that `app.keys` has. It makes their text, so there is no port for it."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.keys import Action, ApiKey, IssuedKey
from tarry.storage.http import writing
from tarry.storage.http.call import Call, Op, ask


def create(
    name: str, actions: Iterable[str], queues: Sequence[str] = ("*",), *, expires_for: timedelta | None = None
) -> Op[IssuedKey]:
    """Where an answer was lost and it was sent again, there is a key more, whose text nobody has: revoke it."""
    body = {"name": name, "actions": [*actions], "queues": [*queues], "expires_for": writing.seconds(expires_for)}
    said = (yield from ask(Call("POST", "/v1/keys", body))).json()
    return IssuedKey(_key(said), said["key"])


def list() -> Op[builtins.list[ApiKey]]:
    return [_key(one) for one in (yield from ask(Call("GET", "/v1/keys"))).json()["keys"]]


def revoke(id: str) -> Op[ApiKey | None]:
    if not id.isalnum():
        return None
    answer = yield from ask(Call("DELETE", f"/v1/keys/{id}"), expected=("unknown_key",))
    return _key(answer.json()) if answer.status == 200 else None


def _key(said: dict[str, Any]) -> ApiKey:
    def at(text: str | None) -> Any:
        return None if text is None else datetime.fromisoformat(text)

    return ApiKey(
        id=said["id"],
        name=said["name"],
        actions=frozenset(map(Action, said["actions"])),
        queues=tuple(said["queues"]),
        secret_hash=b"",  # never leaves the database
        active=said["active"],
        **{name: at(said[name]) for name in ("created_at", "expires_at", "revoked_at")},
    )
