"""Sessions of browsers: what a page may show instead of an API key, where it cannot send one.

A session names its key and is sealed with the hash of that key's secret. So it needs no table and no secret of ours, holds at
every broker on the database, and ends with the key. Who can read the hashes can make one; they can read the messages, too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest, new
from typing import NamedTuple

from tarry.core.keys import ApiKey

_TEXT = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")
_NOBODY = bytes(32)


class Session(NamedTuple):
    key_id: str
    until_s: int
    """Since 1970."""
    seal: str

    @classmethod
    def of(cls, key: ApiKey, until: datetime) -> Session:
        until_s = int(until.timestamp())
        return cls(key.id, until_s, _seal(key.secret_hash, key.id, until_s))

    @classmethod
    def parse(cls, text: str) -> Session | None:
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]), found[3])

    def __str__(self) -> str:
        return f"{self.key_id}.{self.until_s}.{self.seal}"

    @property
    def until(self) -> datetime:
        return datetime.fromtimestamp(min(self.until_s, 253_402_300_799), UTC)

    def proves(self, key: ApiKey | None) -> bool:
        """Whether it was made with this key, which is active. In constant time, also where there is no such key.

        Whether the session is over (`until`) is for the caller to compare with the database's clock.
        """
        expected = _seal(_NOBODY if key is None else key.secret_hash, self.key_id, self.until_s)
        equal = compare_digest(self.seal, expected)
        return equal and key is not None and key.active


def _seal(secret_hash: bytes, key_id: str, until_s: int) -> str:
    return new(secret_hash, f"tarry session\n{key_id}\n{until_s}".encode(), sha256).hexdigest()
