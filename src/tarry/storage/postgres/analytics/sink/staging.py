"""Binary COPY into the staging table: rows are packed here, in the task; the server only stores them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from tarry.core.sinking import StagedRow
from tarry.storage.postgres.statement import Copy

_START = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_END = struct.pack(">h", -1)
_NULL = struct.pack(">i", -1)
_EPOCH_US = 946_684_800_000_000
"""PostgreSQL timestamps count from 2000, Unix time from 1970."""
_FIELDS = 13
_BLOCK = 256 * 1024

_length = struct.Struct(">i").pack
_optional_int = struct.Struct(">ii").pack
# attempt, part, place, priority; then either a due time and no delay, or a delay and no due time.
_at = struct.Struct(">hiqiiiiihiqi").pack
_after = struct.Struct(">hiqiiiiihiid").pack


class Tally:
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


def copy_rows(attempt: int, part: int, rows: Iterable[StagedRow], tally: Tally) -> Copy:
    return Copy(
        "copy tarry.sink_row (attempt, part, place, priority, due_at, delay, max_attempts, queue, key, payload, "
        "content_type, type, headers) from stdin (format binary)",
        _blocks(_packed(attempt, part, rows, tally)),
    )


def _packed(attempt: int, part: int, rows: Iterable[StagedRow], tally: Tally) -> Iterator[bytes]:
    place, size = tally.rows, 0
    queues: dict[str, bytes] = {}
    texts: dict[str, bytes] = {}
    lows: dict[str, str] = {}
    highs: dict[str, str] = {}
    for queue, key, payload, content_type, due_us, delay, priority, type_name, headers, max_attempts in rows:
        if due_us is not None:
            head = _at(_FIELDS, 8, attempt, 4, part, 4, place, 2, priority, 8, due_us - _EPOCH_US, -1)
        else:
            head = _after(_FIELDS, 8, attempt, 4, part, 4, place, 2, priority, -1, 8, delay or 0.0)
        name = queues.get(queue)
        if name is None:
            name = queues[queue] = _field(queue.encode())
            lows[queue] = highs[queue] = key
        elif key < lows[queue]:
            lows[queue] = key
        elif key > highs[queue]:
            highs[queue] = key
        key_bytes = key.encode()
        place += 1
        size += len(key_bytes) + len(payload)
        yield b"".join(
            (
                head,
                _NULL if max_attempts is None else _optional_int(4, max_attempts),
                name,
                _length(len(key_bytes)),
                key_bytes,
                _length(len(payload)),
                payload,
                _NULL if content_type is None else texts.get(content_type) or _kept(texts, content_type),
                _NULL if type_name is None else texts.get(type_name) or _kept(texts, type_name),
                _NULL if headers is None else _field(b"\x01" + headers),
            )
        )
    tally.rows, tally.size = place, tally.size + size
    for queue, low in lows.items():
        tally.learn(queue, low, highs[queue])


def _kept(texts: dict[str, bytes], text: str) -> bytes:
    """Cached encoding: there are few distinct types and content types."""
    if len(texts) > 1000:
        texts.clear()
    packed = texts[text] = _field(text.encode())
    return packed


def _field(value: bytes) -> bytes:
    return _length(len(value)) + value


def _blocks(rows: Iterator[bytes]) -> Iterator[bytes]:
    block, held = [_START], 0
    for row in rows:
        block.append(row)
        held += len(row)
        if held >= _BLOCK:
            yield b"".join(block)
            block, held = [], 0
    yield b"".join([*block, _END])
