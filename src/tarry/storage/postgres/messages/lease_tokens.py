"""Lease tokens: the random number of a poll and the ctid of the row.

The row stores the number, which is unique to its poll: a stale token settles nothing, and a poll needs only one random
number. The consumer's token also contains the ctid of the leased row, so the tokens of a poll differ. The ctid only helps to
find the row, which is settled if key and number match.
"""

import os
from collections.abc import Iterable
from typing import Any
from uuid import UUID, SafeUUID

_TID_SHIFT = 80
_FIXED = 8 << 76 | 2 << 62
"""A UUID of version 8: 48 bits of the ctid, 12 unused bits, 62 bits of the number."""
_NUMBER = (1 << 62) - 1

_members: Any = vars(UUID)
_UNKNOWN = SafeUUID.unknown
_set_int, _set_is_safe = _members["int"].__set__, _members["is_safe"].__set__


def new_poll_number() -> int:
    return int.from_bytes(os.urandom(8)) & _NUMBER


def lease_tokens(number: int, tids: Iterable[bytes]) -> list[UUID]:
    """Create tokens without the checks of `UUID()`, which take longer than the rest of a lease, and without a call per
    row."""
    fixed, make, from_bytes, tokens = _FIXED | number, object.__new__, int.from_bytes, list[UUID]()
    for tid in tids:
        token = make(UUID)
        _set_int(token, from_bytes(tid) << _TID_SHIFT | fixed)
        _set_is_safe(token, _UNKNOWN)
        tokens.append(token)
    return tokens


def poll_numbers(tokens: Iterable[UUID]) -> list[int]:
    return [token.int & _NUMBER for token in tokens]


def poll_number(token: UUID) -> int:
    return token.int & _NUMBER


def row_tids(tokens: Iterable[UUID]) -> list[bytes]:
    return [(token.int >> _TID_SHIFT).to_bytes(6) for token in tokens]


def tid_text(token: UUID) -> str:
    """The ctid as SQL text."""
    tid = token.int >> _TID_SHIFT
    return f"({tid >> 16},{tid & 0xFFFF})"
