"""API keys and their permissions. The text of a key is shown once; only a hash of its secret is stored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from tarry.core.errors import InvalidInput

KEY_TEXT = re.compile(r"tarry_([0-9a-f]{12})_([0-9a-f]{64})")
_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,100}\*?")
MOST_PATTERNS = 100
NO_SECRET = bytes(32)
"""Compared for unknown keys, so that these take as long as known ones."""


class Action(StrEnum):
    READ = "read"
    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"


ROLES: Mapping[str, frozenset[Action]] = {
    "admin": frozenset(Action),
    "operator": frozenset({Action.READ, Action.PRODUCE, Action.CONSUME}),
    "viewer": frozenset({Action.READ}),
}
"""Names for sets of actions, widest first."""


def role_of(actions: Collection[Action]) -> str:
    """The widest role that needs only these actions."""
    return next((role for role, needed in ROLES.items() if needed.issubset(actions)), "limited")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """`queues`: names, or prefixes followed by `*`. `active`: by the store's clock when the key was read."""

    id: str
    name: str
    actions: frozenset[Action]
    queues: tuple[str, ...]
    secret_hash: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    active: bool = True

    def added(self, now: datetime, expires_for: timedelta | None) -> ApiKey:
        """The key as stored by a store without SQL. It expires after `expires_for`, at the latest at `expires_at`."""
        ends = [end for end in (None if expires_for is None else now + expires_for, self.expires_at) if end is not None]
        return replace(self, created_at=now, expires_at=min(ends, default=None))

    def current(self, now: datetime) -> ApiKey:
        is_expired = self.expires_at is not None and self.expires_at <= now
        return replace(self, active=self.revoked_at is None and not is_expired)

    def covers(self, queue: str) -> bool:
        return any(fits(pattern, queue) for pattern in self.queues)

    def allows(self, action: Action, queue: str | None) -> bool:
        """Whether the key permits an action on a queue; None: on all queues."""
        return action in self.actions and ("*" in self.queues if queue is None else self.covers(queue))


class IssuedKey(NamedTuple):
    """A new key with its text, which cannot be read again."""

    key: ApiKey
    text: str


class KeyText(NamedTuple):
    id: str
    secret: str

    @classmethod
    def parse(cls, text: str) -> KeyText | None:
        match = KEY_TEXT.fullmatch(text)
        return None if match is None else cls(match[1], match[2])

    @classmethod
    def made_of(cls, entropy: bytes) -> KeyText:
        """From 38 random bytes: 6 for the id, 32 for the secret."""
        return cls(entropy[:6].hex(), entropy[6:38].hex())

    def __str__(self) -> str:
        return f"tarry_{self.id}_{self.secret}"

    @property
    def secret_hash(self) -> bytes:
        # Not salted or slow: 256 random bits cannot be guessed, and this runs once per request.
        return sha256(self.secret.encode()).digest()

    def proves(self, key: ApiKey | None) -> bool:
        """Whether the secret belongs to an active key. Takes constant time, even for an unknown key."""
        equal = compare_digest(self.secret_hash, NO_SECRET if key is None else key.secret_hash)
        return equal and key is not None and key.active


def fits(pattern: str, queue: str) -> bool:
    return queue.startswith(pattern[:-1]) if pattern.endswith("*") else queue == pattern


def check_actions(actions: Iterable[str]) -> frozenset[Action]:
    names = list(actions)
    unknown = [name for name in names if name not in set(Action)]
    if unknown or not names:
        raise InvalidInput(f"actions of a key must be one or more of {', '.join(Action)}, not {unknown or names}")
    return frozenset(Action(name) for name in names)


def check_patterns(queues: Sequence[str]) -> tuple[str, ...]:
    if not 1 <= len(queues) <= MOST_PATTERNS:
        raise InvalidInput(f"a key must have 1 to {MOST_PATTERNS} queue names or prefixes, not {len(queues):,}")
    for pattern in queues:
        if not isinstance(pattern, str) or not pattern or not _PATTERN.fullmatch(pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"queues of a key must be names, or prefixes followed by *, not {pattern!r:.120}")
    return tuple(queues)
