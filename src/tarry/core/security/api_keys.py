"""API keys: who may do what to which queues. A key is shown once; what is stored cannot be turned back into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from tarry.core import limits
from tarry.core.errors import InvalidInput

KEY_TEXT = re.compile(r"tarry_([0-9a-f]{12})_([0-9a-f]{64})")
_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,100}\*?")
MOST_PATTERNS = 100
_NOBODY = bytes(32)


class Action(StrEnum):
    READ = "read"
    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """`queues` are names, or the beginning of names followed by `*`. `active` is what the store's clock said when read."""

    id: str
    name: str
    actions: frozenset[Action]
    queues: tuple[str, ...]
    secret_hash: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    active: bool = True

    def covers(self, queue: str) -> bool:
        return any(fits(pattern, queue) for pattern in self.queues)

    def allows(self, action: Action, queue: str | None) -> bool:
        """Without a queue it is about all of them, and so must the key be."""
        return action in self.actions and ("*" in self.queues if queue is None else self.covers(queue))


class IssuedKey(NamedTuple):
    """A new key with its text, which nobody can read again."""

    key: ApiKey
    text: str


class KeyText(NamedTuple):
    id: str
    secret: str

    @classmethod
    def parse(cls, text: str) -> KeyText | None:
        found = KEY_TEXT.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @classmethod
    def made_of(cls, entropy: bytes) -> KeyText:
        """38 random bytes: 6 name the key, 32 prove it."""
        return cls(entropy[:6].hex(), entropy[6:38].hex())

    def __str__(self) -> str:
        return f"tarry_{self.id}_{self.secret}"

    @property
    def secret_hash(self) -> bytes:
        # Not salted or slow: 256 random bits cannot be guessed, and this runs once per request.
        return sha256(self.secret.encode()).digest()

    def proves(self, key: ApiKey | None) -> bool:
        """In constant time, also where there is no such key."""
        equal = compare_digest(self.secret_hash, _NOBODY if key is None else key.secret_hash)
        return equal and key is not None and key.active


def fits(pattern: str, queue: str) -> bool:
    return queue.startswith(pattern[:-1]) if pattern.endswith("*") else queue == pattern


def check_actions(actions: Iterable[str]) -> frozenset[Action]:
    wanted = list(actions)
    unknown = [name for name in wanted if name not in set(Action)]
    if unknown or not wanted:
        raise InvalidInput(f"a key may {', '.join(Action)}: name one or more of these, not {unknown or wanted}")
    return frozenset(Action(name) for name in wanted)


def check_patterns(queues: Sequence[str]) -> tuple[str, ...]:
    if not 1 <= len(queues) <= MOST_PATTERNS:
        raise InvalidInput(f"a key is for 1 to {MOST_PATTERNS} queues or beginnings of names, not {len(queues):,}")
    for pattern in queues:
        if not isinstance(pattern, str) or not pattern or not _PATTERN.fullmatch(pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(
                f"a key is for the name of a queue, or for its beginning followed by *, not {pattern!r:.120}"
            )
    return tuple(queues)


def check_key_name(name: object) -> str:
    return limits.check_label(name, "the name of a key")
