# Generated from src/tarry/api/api_keys.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.api_keys`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from datetime import timedelta

from tarry.api.api_keys import drawn
from tarry.core._sync.ports import Store
from tarry.core.security.api_keys import ApiKey, IssuedKey


class ApiKeys:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._role = store.security

    def create(
        self, name: str, actions: Iterable[str], queues: Sequence[str] = ("*",), *, expires_for: timedelta | None = None
    ) -> IssuedKey:
        """The text of the result is the key; it is stored nowhere else."""
        text, key = drawn(name, actions, queues, expires_for)
        return IssuedKey(self._store.run(self._role.add_key(key, expires_for=expires_for)), str(text))

    def list(self) -> builtins.list[ApiKey]:
        return self._store.run(self._role.keys())

    def revoke(self, id: str) -> ApiKey | None:
        return self._store.run(self._role.revoke_key(id))
