"""API keys: create, show once, list, revoke."""

import builtins
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from tarry.core import limits
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import ApiKey, IssuedKey, KeyText, check_actions, check_patterns

_UNKNOWN = datetime.min.replace(tzinfo=UTC)
"""Placeholder: the store's clock sets the creation time."""


class AsyncApiKeys:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._role = store.security

    async def create(
        self, name: str, actions: Iterable[str], queues: Sequence[str] = ("*",), *, expires_for: timedelta | None = None
    ) -> IssuedKey:
        """The text of the result is the key; it is stored nowhere else."""
        text, key = drawn(name, actions, queues, expires_for)
        return IssuedKey(await self._store.run(self._role.add_key(key, expires_for=expires_for)), str(text))

    async def list(self) -> builtins.list[ApiKey]:
        return await self._store.run(self._role.keys())

    async def revoke(self, id: str) -> ApiKey | None:
        return await self._store.run(self._role.revoke_key(id))


def drawn(
    name: str,
    actions: Iterable[str],
    queues: Sequence[str],
    expires_for: timedelta | None,
    expires_by: datetime | None = None,
) -> tuple[KeyText, ApiKey]:
    """A new key, not stored yet. It expires at `expires_by` at the latest."""
    if expires_for is not None:
        limits.check_delay(expires_for, "expires_for")
    text = KeyText.made_of(os.urandom(38))
    key = ApiKey(
        id=text.id,
        name=limits.check_text(name, "the name of a key", limits.TYPE_LENGTH),
        actions=check_actions(actions),
        queues=check_patterns(queues),
        secret_hash=text.secret_hash,
        created_at=_UNKNOWN,
        expires_at=None if expires_by is None else limits.check_instant(expires_by, "expires_by"),
    )
    return text, key
