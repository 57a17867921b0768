"""Generated keys: UUIDv7, because ids that grow keep an index dense and fast."""

from __future__ import annotations


def uuid7(unix_ns: int, entropy: bytes) -> str:
    """RFC 9562 version 7 with the sub-millisecond part in `rand_a`, so ids of one process sort by time within a millisecond.

    Time and randomness are arguments: the core has neither.
    """
    ms, rest_ns = divmod(unix_ns, 1_000_000)
    time = (ms & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | rest_ns * 4096 // 1_000_000
    rest = 0b10 << 62 | int.from_bytes(entropy[:8]) & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{time << 64 | rest:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
