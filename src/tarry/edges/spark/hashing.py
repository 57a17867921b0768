"""PostgreSQL's hash functions over Arrow columns: `tarry.event_hash` computed without the database.

The sum over the rows of a window in PostgreSQL must equal the sum over its Parquet files; otherwise rows were lost.
"""

# pyright: basic
from __future__ import annotations

from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

_START = 0x9E3779B9 + 3923095
_EPOCH_US = 946_684_800_000_000  # 2000-01-01, the epoch of PostgreSQL timestamps
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_MATRIX_BYTES = 8 * 2**20
"""Texts are hashed in a matrix, one per row; longer texts in smaller groups."""

# Column, hash function, seed, in the order of tarry.event_hash.
_COLUMNS = (
    ("id", "long", 1),
    ("xid", "long", 2),
    ("at", "instant", 3),
    ("kind", "word", 4),
    ("queue_id", "int", 5),
    ("key", "text", 6),
    ("version", "long", 7),
    ("attempt", "int", 8),
    ("priority", "int", 9),
    ("due_at", "instant", 10),
    ("leased_at", "instant", 11),
    ("lease_until", "instant", 12),
    ("consumer", "word", 13),
    ("size", "int", 14),
    ("payload_hash", "bytes", 15),
    ("error", "word", 16),
    ("detail", "word", 17),
    ("payload", "large", 18),
)
COLUMNS = tuple(name for name, _, _ in _COLUMNS)


def event_hash(batch: pa.RecordBatch | pa.Table) -> U64:
    """One hash per row."""
    mixed = np.zeros(batch.num_rows, dtype=np.uint64)
    for name, how, seed in _COLUMNS:
        column = batch.column(name)
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        hashed = _HOW[how](array, seed)
        if array.null_count:
            hashed = np.where(_is_null(array), np.uint64(seed), hashed)
        mixed ^= hashed
    return _long(mixed.view(np.int64), 0)


def text_hash(array: pa.Array, seed: int) -> U64:
    """`hashtextextended`; the value for nulls is undefined."""
    lengths, data = _laid_out(array)
    hashed = np.zeros(len(array), dtype=np.uint64)
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        # Take as many of the next longer texts as fit into the matrix; the longest sets its width.
        last = first + 1
        while last < len(order):
            widest = int(lengths[order[min(len(order), first + 2 * (last - first)) - 1]])
            if 2 * (last - first) * (widest + 12) > _MATRIX_BYTES:
                break
            last = min(len(order), first + 2 * (last - first))
        group = order[first:last]
        hashed[group] = _bytes_hash(data, starts[group], lengths[group], seed)
        first = last
    return hashed


def _laid_out(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The lengths of the values, and their bytes concatenated."""
    binary = array.cast(pa.large_binary())
    counted = pc.binary_length(binary)  # pyright: ignore[reportAttributeAccessIssue] - pyarrow makes it at run time
    lengths = pc.fill_null(counted, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.frombuffer(binary.buffers()[1], dtype=np.int64)[binary.offset : binary.offset + len(binary) + 1]
    held = binary.buffers()[2]
    data = np.frombuffer(held, dtype=np.uint8) if held is not None else np.zeros(0, dtype=np.uint8)
    data = data[int(offsets[0]) : int(offsets[-1])]
    if len(data) != int(lengths.sum()):  # a null may still have bytes in the buffer
        keep = np.repeat(~_is_null(array), np.diff(offsets))
        data = data[keep]
    return lengths, data


def _bytes_hash(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int) -> U64:
    """`hash_bytes_extended`: twelve bytes per round; the last, incomplete round is padded with zeros, which add
    nothing.
    """
    rounds = lengths // 12
    width = (int(lengths.max(initial=0)) // 12 + 1) * 12
    matrix = np.zeros((len(lengths), width), dtype=np.uint8)
    inside = np.arange(width)[None, :] < lengths[:, None]
    flat = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
    matrix[inside] = data[flat]
    words = matrix.view("<u4")
    a, b, c = _begin(lengths.astype(np.uint32), seed)
    for i in range(int(rounds.max(initial=0))):
        busy = np.nonzero(rounds > i)[0]
        mixed = _mix(a[busy] + words[busy, 3 * i], b[busy] + words[busy, 3 * i + 1], c[busy] + words[busy, 3 * i + 2])
        a[busy], b[busy], c[busy] = mixed
    rows = np.arange(len(lengths))
    a += words[rows, 3 * rounds]
    b += words[rows, 3 * rounds + 1]
    c += words[rows, 3 * rounds + 2] << np.uint32(8)
    return _final(a, b, c)


def _hexed(array: pa.Array) -> pa.Array:
    lengths, data = _laid_out(array)
    text = np.empty((len(data), 2), dtype=np.uint8)
    text[:, 0], text[:, 1] = _HEX[data >> 4], _HEX[data & 15]
    offsets = np.concatenate([[0], np.cumsum(lengths * 2)]).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    )


def _word(array: pa.Array, seed: int) -> U64:
    """Hash columns with few distinct values: each distinct value is hashed once."""
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.uint64)
    coded = array.dictionary_encode()
    places = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
    return text_hash(coded.dictionary, seed)[places]


def _bytes(array: pa.Array, seed: int) -> U64:
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.uint64)
    return text_hash(_hexed(array), seed)


def _large(array: pa.Array, seed: int) -> U64:
    """Hash long values by their SHA-256: payloads are long and few."""
    if array.null_count == len(array):
        return np.zeros(len(array), dtype=np.uint64)
    return text_hash(
        pa.array([sha256(value).hexdigest() if value is not None else None for value in array.to_pylist()]), seed
    )


def _numbers(array: pa.Array) -> NDArray[np.int64]:
    return pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def _int(array: pa.Array, seed: int) -> U64:
    return _u32(_numbers(array).astype(np.int32).view(np.uint32), seed)


def _instant(array: pa.Array, seed: int) -> U64:
    return _long(_numbers(array) - _EPOCH_US, seed)


def _long(values: NDArray[np.int64], seed: int) -> U64:
    low = values.astype(np.uint32)
    high = (values.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    return _u32(low ^ np.where(values >= 0, high, ~high), seed)


def _u32(values: U32, seed: int) -> U64:
    """`hash_uint32_extended`."""
    a, b, c = _begin(np.full(len(values), 4, dtype=np.uint32), seed)
    return _final(a + values, b, c)


def _begin(lengths: U32, seed: int) -> tuple[U32, U32, U32]:
    a = lengths + np.uint32(_START & 0xFFFFFFFF)
    b, c = a.copy(), a.copy()
    if seed == 0:
        return a, b, c
    return _mix(a + np.uint32(seed >> 32), b + np.uint32(seed & 0xFFFFFFFF), c)


def _rot(x: U32, n: int) -> U32:
    return (x << np.uint32(n)) | (x >> np.uint32(32 - n))


def _mix(a: U32, b: U32, c: U32) -> tuple[U32, U32, U32]:
    a, c = (a - c) ^ _rot(c, 4), c + b
    b, a = (b - a) ^ _rot(a, 6), a + c
    c, b = (c - b) ^ _rot(b, 8), b + a
    a, c = (a - c) ^ _rot(c, 16), c + b
    b, a = (b - a) ^ _rot(a, 19), a + c
    c, b = (c - b) ^ _rot(b, 4), b + a
    return a, b, c


def _final(a: U32, b: U32, c: U32) -> U64:
    c = (c ^ b) - _rot(b, 14)
    a = (a ^ c) - _rot(c, 11)
    b = (b ^ a) - _rot(a, 25)
    c = (c ^ b) - _rot(b, 16)
    a = (a ^ c) - _rot(c, 4)
    b = (b ^ a) - _rot(a, 14)
    c = (c ^ b) - _rot(b, 24)
    return (b.astype(np.uint64) << np.uint64(32)) | c.astype(np.uint64)


def _is_null(array: pa.Array) -> NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)


_HOW = {
    "int": _int,
    "long": lambda array, seed: _long(_numbers(array), seed),
    "instant": _instant,
    "text": text_hash,
    "word": _word,
    "bytes": _bytes,
    "large": _large,
}
