"""Browser sessions: credentials for pages that cannot send an API key.

A session contains the id of its key and is signed with the hash of the key's secret. So it needs no table and no server
secret, is valid at every broker of the database, and expires with the key. A database user that can read the hashes can
forge a session, but can read the messages as well."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest, new
from typing import NamedTuple

from tarry.core.security.api_keys import NO_SECRET, ApiKey

EVENTS = "events"
DASHBOARD = "dashboard"
"""The purpose of a session: one for live events opens no dashboard."""
_TEXT = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")


class Session(NamedTuple):
    key_id: str
    until_s: int
    """Seconds since 1970."""
    seal: str

    @classmethod
    def of(cls, key: ApiKey, until: datetime, purpose: str = EVENTS) -> Session:
        until_s = int(until.timestamp())
        return cls(key.id, until_s, _seal(key.secret_hash, key.id, until_s, purpose))

    @classmethod
    def parse(cls, text: str) -> Session | None:
        match = _TEXT.fullmatch(text)
        return None if match is None else cls(match[1], int(match[2]), match[3])

    def __str__(self) -> str:
        return f"{self.key_id}.{self.until_s}.{self.seal}"

    @property
    def until(self) -> datetime:
        return datetime.fromtimestamp(min(self.until_s, 253_402_300_799), UTC)

    def proves(self, key: ApiKey | None, purpose: str = EVENTS) -> bool:
        """Whether the session was signed with this active key. Takes constant time, even for an unknown key.

        The caller compares `until` with the database's clock.
        """
        expected = _seal(NO_SECRET if key is None else key.secret_hash, self.key_id, self.until_s, purpose)
        equal = compare_digest(self.seal, expected)
        return equal and key is not None and key.active


def _seal(secret_hash: bytes, key_id: str, until_s: int, purpose: str) -> str:
    return new(secret_hash, f"tarry session {purpose}\n{key_id}\n{until_s}".encode(), sha256).hexdigest()
