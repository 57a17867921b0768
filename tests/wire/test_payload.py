"""Stored payloads are checked before they are passed through, cheaply."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from tarry.wire.payload import Content

NESTED = b"[" + b",".join([b"[]"] * 85_000) + b"]"
TEXTS = [
    b"1", b" 1 ", b"{}", b'"a"', b"[1e5]", b"1e-999", b"9" * 400, b'"1e999"', b"[" * 500 + b"]" * 500,
    b'"\\u0000"', '"ü"'.encode(),
    b"", b" ", b"1 x", b"{} {}", b"NaN", b"[NaN]", b"-Infinity", b'"\xff"', b'{"\xff":1}', b'["\xc3("]', b'"\xed\xa0\x80"',
    b'"\\ud800"', b'"\x01"', b'"\\x"', b"01", b"1.", b"1e", b"[1,]", b"{a:1}", b'"abc', b"\xef\xbb\xbf1", b"1\x00",
    b"1e999", b"[1E+0999]", b"-1e400", b"9" * 400 + b".5", b"9" * 250 + b"e99", b"9" * 5_000, b"[" * 5_000 + b"]" * 5_000,
]  # fmt: skip


def test_a_payload_is_checked_without_building_its_objects() -> None:
    content = Content(NESTED, None)
    tracemalloc.start()
    try:
        assert "payload" in content.shown()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(NESTED), "85,000 lists take five megabytes"


@pytest.mark.parametrize("data", TEXTS, ids=lambda data: repr(data[:12]))
def test_only_what_a_client_can_decode_is_passed_through(data: bytes) -> None:
    try:
        msgspec.json.decode(data)
        readable = True
    except (msgspec.MsgspecError, ValueError, RecursionError):
        readable = False
    assert ("payload" in Content(data, None).shown()) == readable
