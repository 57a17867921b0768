"""Binary COPY into the staging table: rows are packed here, in the task; the server only stores them."""

import struct
from collections.abc import Iterable, Iterator

from tarry.core.analytics.bulk_offer import StagedRow
from tarry.storage.postgres.copy_encoder import NULL, blocks, field, length
from tarry.storage.postgres.statement import Copy

_EPOCH_US = 946_684_800_000_000
"""PostgreSQL timestamps count from 2000, Unix time from 1970."""
_FIELDS = 13

_optional_int = struct.Struct(">ii").pack
# attempt, part, position, priority; then either a due time, or seconds from now on.
_at = struct.Struct(">hiqiiiiihiqi").pack
_after = struct.Struct(">hiqiiiiihiid").pack


class StagedTotals:
    """Statistics of the packed rows: rows, bytes, queues and the range of keys. Grows while blocks are sent."""

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self.queues: set[str] = set()
        self.first: tuple[str, str] | None = None
        self.last: tuple[str, str] | None = None

    def learn(self, queue: str, low: str, high: str) -> None:
        self.queues.add(queue)
        self.first = min(self.first or (queue, low), (queue, low))
        self.last = max(self.last or (queue, high), (queue, high))


def copy_rows(attempt: int, part: int, rows: Iterable[StagedRow], totals: StagedTotals) -> Copy:
    return Copy(
        "copy tarry.sink_row (attempt, part, seq, priority, due_at, after_s, max_attempts, queue, key, payload, "
        "content_type, type, headers) from stdin (format binary)",
        blocks(_packed(attempt, part, rows, totals)),
    )


def _packed(attempt: int, part: int, rows: Iterable[StagedRow], totals: StagedTotals) -> Iterator[bytes]:
    position, size = totals.rows, 0
    queues: dict[str, bytes] = {}
    texts: dict[str, bytes] = {}
    lows: dict[str, str] = {}
    highs: dict[str, str] = {}
    for queue, key, payload, content_type, due_us, after_s, priority, type_name, headers, max_attempts in rows:
        if due_us is not None:
            head = _at(_FIELDS, 8, attempt, 4, part, 4, position, 2, priority, 8, due_us - _EPOCH_US, -1)
        else:
            head = _after(_FIELDS, 8, attempt, 4, part, 4, position, 2, priority, -1, 8, after_s or 0.0)
        name = queues.get(queue)
        if name is None:
            name = queues[queue] = field(queue.encode())
            lows[queue] = highs[queue] = key
        elif key < lows[queue]:
            lows[queue] = key
        elif key > highs[queue]:
            highs[queue] = key
        key_bytes = key.encode()
        position += 1
        size += len(key_bytes) + len(payload)
        yield b"".join(
            (
                head,
                NULL if max_attempts is None else _optional_int(4, max_attempts),
                name,
                length(len(key_bytes)),
                key_bytes,
                length(len(payload)),
                payload,
                NULL if content_type is None else texts.get(content_type) or _kept(texts, content_type),
                NULL if type_name is None else texts.get(type_name) or _kept(texts, type_name),
                NULL if headers is None else field(b"\x01" + headers),
            )
        )
    totals.rows, totals.size = position, totals.size + size
    for queue, low in lows.items():
        totals.learn(queue, low, highs[queue])


def _kept(texts: dict[str, bytes], text: str) -> bytes:
    """Cached encoding: there are few distinct types and content types."""
    if len(texts) > 1000:
        texts.clear()
    packed = texts[text] = field(text.encode())
    return packed
